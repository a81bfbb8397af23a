"""Search without a supernet: architectures are scored untrained, evaluated one by one, and compared.

Nothing here has a gradient. A training step is a *round*, which the subclass defines. Scores and evaluations
are part of the checkpoint, so a search that was killed resumes with the next round, to the same bits. With
several processes each scores and trains its share of the architectures.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, TypeVar

import torch
from torch import nn

from nas_lightning.backends import Backend, check_backend, is_alone, spread, width
from nas_lightning.data import SearchData
from nas_lightning.data.batches import Batch
from nas_lightning.data.search import check_search_data
from nas_lightning.genotype import Genotype
from nas_lightning.metrics.base import Metric
from nas_lightning.metrics.pool import check_pool, score_pool
from nas_lightning.objectives.rankings import log_ranks
from nas_lightning.objectives.short_training import (
    PLAIN,
    Evaluator,
    ShortTraining,
    ShortTrainingSettings,
    build_objective,
    check_timed,
    evaluate_timed,
)
from nas_lightning.objectives.tables import TabularBenchmark
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.strategies.base import Strategy
from nas_lightning.training.run_length import deadline_of
from nas_lightning.utils.machine import Processes
from nas_lightning.utils.processes import from_first, rank_and_world, share_out
from nas_lightning.utils.progress import OutOfTimeError
from nas_lightning.utils.text import duration
from nas_lightning.validation import NonNegativeInt, PositiveFloat, PositiveInt, Seed, at_least, checked

T = TypeVar("T")
Scores = dict[str, float]
_ENTRY = "nas_lightning_black_box"  # of a checkpoint


class BlackBox(Strategy):
    """Base class of strategies that score and evaluate whole architectures.

    `rounds`, the number of rounds so far, is the only parameter: Lightning counts optimizer steps for
    checkpoints, and cannot distribute a module without parameters.

    Searches with an evaluation log the best value so far under the objective's name (`valid_accuracy`;
    `oracle_test_accuracy` for a table of test accuracies only), and the value of the round under
    `candidate/…`. Scores and short trainings are float32, whatever the trainer's precision.

    Args:
        space: the search space.
        network: genotype → derived network.
        data: the images.
        benchmark: the table for `evaluation="table"`.
        images: number of training images on which architectures are scored; fewer if there are fewer.
        pool: a CSV file to which scores are appended, and which another search can continue.
        workers: number of processes that score architectures and train the next ones in advance.
        backend: where the processes run, see `nas_lightning.backends.spread`.
        evaluation: `training`, a short one; `table`; or `none`: the scores decide.
        epochs: number of epochs of the short training.
        lr: learning rate of the short training.
        short_training: the other settings of the short training.
        agreement: number of architectures that are scored again with other weights, to warn of noisy metrics;
            the pool must be four times as large. 0: none.
        seconds: time limit of all evaluations, by the table or by the clock. An evaluation that ends later
            does not count and ends the search. None: no limit.
        seed: seed of all random numbers.
    """

    metrics: Mapping[str, Metric]
    """The metrics of the scores, which share their passes; set by the constructor of a subclass."""

    needs_steps = True

    @checked
    def __init__(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        data: SearchData,
        benchmark: TabularBenchmark | None = None,
        *,
        images: Annotated[int, at_least(2)] = 32,
        pool: str | Path | None = None,
        workers: Processes = 1,
        backend: Backend = "processes",
        evaluation: Evaluator = "none",
        epochs: PositiveInt = 3,
        lr: PositiveFloat = 0.1,
        short_training: ShortTrainingSettings = PLAIN,
        agreement: NonNegativeInt = 24,
        seconds: PositiveFloat | None = None,
        seed: Seed = 0,
    ) -> None:
        super().__init__(space, seed)
        self.automatic_optimization = False
        check_search_data(data, type(self).__name__)
        self.network, self.data = network, data
        self.images, self.seed, self.agreement, self.seconds = images, seed, agreement, seconds
        self.processes: dict[str, Any] = {"workers": workers, "backend": backend}
        self.pool = None if pool is None else Path(pool)
        options: dict[str, Any] = {"epochs": epochs, "lr": lr, "settings": short_training, "seed": seed}
        training = ShortTraining(space, network, data, **options)
        training.out_of_time = self.out_of_time
        self.objective = build_objective(evaluation, training, benchmark)
        self.prefetch = Prefetch(training if evaluation == "training" else None, workers, backend)
        if seconds is not None:
            check_timed(self.objective, space.sample(torch.Generator().manual_seed(seed)))
        self.rounds = nn.Parameter(torch.zeros(()))
        self.scored: dict[str, Scores] = {}  # by notation, in order
        self.evaluated: dict[str, float] = {}
        self.self_correlations: dict[str, float] | None = None  # None: not computed yet
        self.spent = {"scoring": 0.0, "evaluating": 0.0}  # seconds

    def search_state(self) -> dict[str, Any]:
        """Return the state that a subclass adds to a checkpoint, in plain containers."""
        return {}

    def load_search_state(self, state: Mapping[str, Any]) -> None:
        """Load what `search_state` returned."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        names = ("scored", "evaluated", "spent", "self_correlations")
        checkpoint[_ENTRY] = {**{name: getattr(self, name) for name in names}, "own": self.search_state()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        state = checkpoint[_ENTRY]
        self.scored, self.evaluated = dict(state["scored"]), dict(state["evaluated"])
        self.spent, self.self_correlations = dict(state["spent"]), state["self_correlations"]
        self.load_search_state(state["own"])

    def on_fit_start(self) -> None:
        super().on_fit_start()
        if isinstance(self.objective, ShortTraining):
            self.objective.device = self.device
        if self.pool is not None and self.metrics:
            check_pool(self.pool, self.space, *self._subject(), self.metrics, self.seed, self.device)

    @abstractmethod
    def run_round(self, number: int) -> Mapping[str, float]:
        """Run round `number`, counted from 0, and return further metrics to log."""

    def training_step(self, *args: Any) -> None:
        with single_precision(self.device):
            try:
                values = self.run_round(int(self.rounds))
            except OutOfTimeError:
                values, self.trainer.should_stop = {}, True
        self.log_dict({**self._progress(), **values}, on_step=True, on_epoch=False)
        optimizer = self.optimizers()
        self.rounds.grad = -torch.ones_like(self.rounds)
        optimizer.step()  # type: ignore[union-attr]
        optimizer.zero_grad()  # type: ignore[union-attr]

    def on_train_end(self) -> None:
        super().on_train_end()
        if self.trainer.progress_bar_callback is not None:  # otherwise the output is quiet
            self.print(", ".join(f"{work} took {duration(spent)}" for work, spent in self.spent.items()))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD([self.rounds], lr=1.0)

    def score(self, genotypes: Sequence[Genotype]) -> list[Scores]:
        """Return the metrics of architectures; each one is scored once in a search."""
        named = {self.space.notation(genotype): genotype for genotype in genotypes}
        new = {name: genotype for name, genotype in named.items() if name not in self.scored}
        if new:
            found = self.timed("scoring", lambda: self.measure(list(new.values())))
            self.scored.update(zip(new, found, strict=False))
            if len(found) < len(new):
                raise OutOfTimeError
            if self.self_correlations is None:
                check = partial(correlate_again, self.scored, self.metrics, self.agreement)
                self.self_correlations = check(self._score_again)
        return [self.scored[self.space.notation(genotype)] for genotype in genotypes]

    def evaluate(self, genotype: Genotype) -> float:
        """Return the objective of an architecture, which is evaluated once in a search."""
        objective, notation = self.objective, self.space.notation(genotype)
        assert objective is not None
        if notation not in self.evaluated:
            if self.prefetch.is_alone:
                timed = from_first(partial(evaluate_timed, objective, genotype))
            else:
                timed = self.prefetch.evaluate(genotype, self.likely_next)
            if timed is None or self.spent["evaluating"] + timed[1] > (self.seconds or math.inf):
                raise OutOfTimeError
            self.evaluated[notation] = timed[0]
            self.spent["evaluating"] += timed[1]
        return self.evaluated[notation]

    def likely_next(self, count: int) -> list[Genotype]:
        """Return at most `count` architectures that the next rounds are likely to evaluate.

        It is only a hint for several workers: it changes no result.
        """
        return []

    def ranking(self) -> dict[str, float]:
        """Return the ranking of all scored architectures by notation; larger is better."""
        return dict(zip(self.scored, log_ranks(list(self.scored.values()), self.metrics), strict=True))

    def derive(self) -> list[Genotype]:
        """Return the best architecture by evaluation, or by score if none was evaluated."""
        values = self.evaluated or self.ranking()
        if not values:  # before the first round
            return [self.space.sample(torch.Generator().manual_seed(self.seed))]
        return [self.space.parse(max(values, key=values.__getitem__))]

    def _progress(self) -> dict[str, float]:
        values: dict[str, float] = {"num_scored": len(self.scored)}
        values |= {f"self_correlation/{name}": rho for name, rho in (self.self_correlations or {}).items()}
        if self.objective is not None and self.evaluated:
            values[self.objective.name] = max(self.evaluated.values()) / 100
        return values

    def measure(self, genotypes: Sequence[Genotype]) -> list[Scores]:
        """Compute the metrics of architectures that were not scored before."""
        return self._score_pool(genotypes, self.metrics, self.pool, self.seed)

    def _score_pool(
        self, genotypes: Sequence[Genotype], metrics: Mapping[str, Metric], path: Path | None, seed: int
    ) -> list[Scores]:
        build, batch = self._subject()
        options: dict[str, Any] = {"path": path, "out_of_time": self._is_over, **self.processes}
        options |= {"seed": seed, "device": self.device}
        return score_pool(self.space, build, genotypes, batch, metrics, **options)

    def _score_again(self, notations: list[str], metrics: Mapping[str, Metric]) -> list[Scores]:
        path = None if self.pool is None else self.pool.with_stem(f"{self.pool.stem}_second")
        again = [self.space.parse(notation) for notation in notations]
        return self.timed("scoring", lambda: self._score_pool(again, metrics, path, self.seed + 1))

    def _subject(self) -> tuple[NetworkFactory, Batch]:
        """Return the network factory and the images to score on: fixed, without augmentation."""
        return self.network, self.data.train.plain_images(self.images, self.seed)

    def _is_over(self) -> bool:
        """Return whether the time is over, by the clock of the first process."""
        return deadline_of(self.trainer) is not None and from_first(self.out_of_time)

    def timed(self, what: str, work: Callable[[], T]) -> T:
        """Do the work in all processes, and add the time of the first to `spent`."""
        start = monotonic()
        result = work()
        self.spent[what] += from_first(lambda: monotonic() - start)
        return result


# Several workers or processes train the architectures of the next rounds in advance.
#
# An accuracy depends only on the seed and the architecture, so prefetching changes no result.

Timed = tuple[float, float] | None  # value and seconds; None where time was over


class Prefetch:
    """Short trainings of several architectures at once, of which the first one is needed now.

    With n at once a search whose next architectures are known takes about 1/n of the time.

    Args:
        training: the short training; None: evaluations are table lookups, which are not prefetched.
        workers: number of processes of each process of a distributed run.
        backend: where the processes run, see `nas_lightning.backends.spread`.
    """

    def __init__(self, training: ShortTraining | None, workers: int, backend: Backend) -> None:
        check_backend(backend, "strategy.backend")
        self.training, self.workers, self.backend = training, workers, backend
        self.values: dict[str, Timed] = {}

    @property
    def is_alone(self) -> bool:
        """Whether one process evaluates one architecture after the other."""
        alone = rank_and_world()[1] == 1 and is_alone(self.workers, self.backend)
        return self.training is None or alone

    def evaluate(self, genotype: Genotype, likely_next: Callable[[int], list[Genotype]]) -> Timed:
        """Return the value and seconds, training it together with those that are likely to come next."""
        assert self.training is not None
        name = self.training.space.notation(genotype)
        if name not in self.values:
            at_once = width(self.backend, self.workers) * rank_and_world()[1]
            self._train(self.training, [genotype, *likely_next(at_once - 1)])
        return self.values.pop(name)

    def _train(self, training: ShortTraining, genotypes: list[Genotype]) -> None:
        names = {training.space.notation(genotype): genotype for genotype in genotypes}
        todo = [(name, genotype) for name, genotype in names.items() if name not in self.values]
        sent = training if is_alone(self.workers, self.backend) else training.to_send()
        options: dict[str, Any] = {"workers": self.workers, "backend": self.backend}
        run = partial(spread, partial(_evaluate, sent), **options, device=training.device)
        self.values |= dict(share_out(run, todo, count=len(todo)))


def _evaluate(training: ShortTraining, name: str, genotype: Genotype) -> tuple[str, Timed]:
    return name, evaluate_timed(training, genotype)


# Self-correlation: scores of the same architectures with two draws of their weights.
#
# A metric whose order changes with the draw is noise. The reverse does not hold: the gradient's norm
# correlates with itself everywhere, and points the wrong way in some spaces.

LEAST = 0.5
"""Spearman's ρ below which a metric counts as noise; jacov on DARTS cells has 0.3 to 0.4."""


Scored = Mapping[str, Mapping[str, float]]


def correlate_again(
    scored: Scored,
    metrics: Mapping[str, Metric],
    count: int,
    score: Callable[[list[str], Mapping[str, Metric]], Sequence[Mapping[str, float]]],
) -> dict[str, float] | None:
    """Score the first `count` again with other weights, if that costs at most a quarter of all scores."""
    drawn = {name: metric for name, metric in metrics.items() if not metric.counts_only}
    if not 0 < 4 * count <= len(scored) or not drawn:
        return None
    first = list(scored)[:count]
    again = score(first, drawn)
    if len(again) < count:
        raise OutOfTimeError
    found = self_correlations([scored[notation] for notation in first], again)
    warn_of_noise(found, count)
    return found


def self_correlations(
    first: Sequence[Mapping[str, float]], second: Sequence[Mapping[str, float]]
) -> dict[str, float]:
    """Return Spearman's ρ between two draws by metric, without metrics that are constant.

    >>> draws = [{"a": 1.0, "b": 1.0}, {"a": 2.0, "b": 2.0}], [{"a": 5.0, "b": 9.0}, {"a": 6.0, "b": 8.0}]
    >>> self_correlations(*draws)
    {'a': 1.0, 'b': -1.0}
    """
    from scipy.stats import rankdata

    correlations = {}
    for name in second[0]:
        ranks = [rankdata([row[name] for row in rows]) for rows in (first, second)]
        x, y = (values - values.mean() for values in ranks)
        size = math.sqrt((x @ x) * (y @ y))
        if size > 0:
            correlations[name] = float(x @ y / size)
    return correlations


def warn_of_noise(correlations: Mapping[str, float], count: int) -> None:
    """Warn of metrics whose self-correlation is below `LEAST`."""
    noisy = [f"{name} {rho:.2f}" for name, rho in correlations.items() if rho < LEAST]
    if noisy:
        warnings.warn(
            f"metrics disagree with themselves: Spearman's correlation between two draws of {count} "
            f"architectures' weights is below {LEAST} for {', '.join(noisy)}. Leave them out, or score "
            "larger networks (network.channels, network.cells) on more images (strategy.images)",
            stacklevel=2,
        )


# Proposals of a Gaussian process, which is fitted to all observations each time, so that it has no state.

Box = Mapping[str, tuple[float, float]]
"""The bounds of each parameter."""


def suggest(seen: Iterable[tuple[Mapping[str, float], float]], box: Box, seed: int) -> dict[str, float]:
    """Return the parameters in the box with the largest expected improvement; larger values are better.

    >>> seen = [({"x": 0.1}, 1.0), ({"x": 0.9}, 3.0), ({"x": 0.5}, 2.0)]
    >>> suggest(seen, {"x": (0.0, 1.0)}, seed=0)["x"] > 0.5
    True
    """
    import optuna
    from optuna.distributions import FloatDistribution
    from optuna.trial import create_trial

    loudness = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        sampler = optuna.samplers.GPSampler(seed=seed % 2**32, n_startup_trials=0)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        distributions = {name: FloatDistribution(*ends) for name, ends in box.items()}
        for parameters, value in seen:
            trial = create_trial(params=dict(parameters), distributions=dict(distributions), value=value)
            study.add_trial(trial)
        return dict(study.ask(dict(distributions)).params)
    finally:
        optuna.logging.set_verbosity(loudness)


# Scores and short trainings run in float32, whatever the trainer's precision.


@contextmanager
def single_precision(device: torch.device) -> Iterator[None]:
    """Disable autocast and use float32 as default, so that other processes compute the same scores."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_default_dtype(before)
