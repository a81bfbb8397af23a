"""Monitors of a search or a training: kernel, convergence rate, ranking, history."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_only, rank_zero_warn
from torch import Tensor, distributed, nn

from nas_lightning.data import SearchData
from nas_lightning.data.batches import INPUTS, TARGETS
from nas_lightning.errors import InputError
from nas_lightning.metrics.engine import Batch
from nas_lightning.metrics.kernel import Kernel, Output
from nas_lightning.metrics.ntk import ntk
from nas_lightning.metrics.recording import Scheme, initialize
from nas_lightning.objectives.inherited import judge_genotype, kendall_tau, log_likelihood, place_batches
from nas_lightning.runs.facts import FIGURES, HISTORY_FILE, history_line, read_history
from nas_lightning.spaces.group import Group, without_none
from nas_lightning.spaces.topology import topology_metrics
from nas_lightning.strategies.base import Strategy
from nas_lightning.strategies.nesbs.strategy import Nesbs
from nas_lightning.strategies.one_shot.convergence_rate import check, convergence_rate
from nas_lightning.strategies.one_shot.strategy import OneShot
from nas_lightning.tasks import MultiClass, task_of
from nas_lightning.utils.files import json_text, write_whole
from nas_lightning.validation import PositiveInt, Seed, at_least, checked

if TYPE_CHECKING:
    from nas_lightning.strategies.base import Strategy


class NTKMonitor(pl.Callback):
    """Logs trace, κ, and λ_min of the neural tangent kernel of any module on a fixed batch, every few epochs.

    The first process logs `ntk_sqrt_mean_diag` (√(trace/m)), `ntk_condition`, `ntk_lambda_min`, and
    `ntk_seconds`. A measurement takes about two training steps on its batch; training is the same to the bit
    with and without it. If a kernel cannot be computed, the callback warns once and training continues.

    Args:
        every_n_epochs: the interval.
        batch_size: size of the batch, the first samples of the training data; for searches, of the data for
            the weights.
        attribute: the measured part of the module (`network` for retraining); None: the module.
        network: genotype → network; measures the architecture that a search would derive now, with the same
            random weights each time, so that only the architecture changes.
        scheme: initialization of that network.
        output: the logits whose gradients make the kernel, see `metrics.kernel`; `sum` if targets are not
            classes.
        batch: inputs and labels to measure on, or a function that returns them; None: the first of the
            training data.
        inputs: training batch → (inputs, labels), if a batch is neither a pair nor a mapping with the usual
            names, see `first_pair`.
        seed: of the random weights.

    >>> x, y = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])
    >>> monitor = NTKMonitor(attribute="network", batch=(x, y))  # in `pl.Trainer(callbacks=[monitor])`
    >>> module = pl.LightningModule()
    >>> module.network = nn.Linear(3, 2, bias=False)
    >>> bool(torch.isclose(torch.tensor(monitor.measure(module).trace), x.double().square().sum().float()))
    True
    """

    @checked
    def __init__(
        self,
        every_n_epochs: PositiveInt = 1,
        batch_size: Annotated[int, at_least(2)] = 64,
        *,
        attribute: str | None = None,
        network: Callable[[Any], nn.Module] | None = None,
        scheme: Scheme = "lecun",
        output: Output = "true_class",
        batch: Batch | Callable[[], Batch] | None = None,
        inputs: Callable[[Any], Batch] | None = None,
        seed: Seed = 0,
    ) -> None:
        if attribute is not None and network is not None:
            raise InputError("Pass either `attribute` or `network`", got="both")
        self.every_n_epochs, self.batch_size = every_n_epochs, batch_size
        self.attribute, self.network, self.scheme = attribute, network, scheme
        self.output, self.seed = output, seed
        self.batch: Batch | None = batch() if callable(batch) else batch
        self.inputs = first_pair if inputs is None else inputs
        self._failed = False

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self.batch is not None or self._failed:
            return
        try:
            x, y = self.inputs(batch)
            self.batch = x[: self.batch_size].detach().clone(), y[: self.batch_size].detach().clone()
        except Exception as error:
            self._give_up(error)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        due = (trainer.current_epoch + 1) % self.every_n_epochs == 0
        if self.batch is None or self._failed or not due or not trainer.is_global_zero:
            return
        start = time.perf_counter()
        try:
            kernel = self.measure(pl_module)
        except Exception as error:  # of any network, whose training continues
            return self._give_up(error)
        values = {
            "ntk_sqrt_mean_diag": (kernel.trace / len(self.batch[0])) ** 0.5,
            "ntk_condition": kernel.condition,
            "ntk_lambda_min": kernel.lambda_min,
            "ntk_seconds": time.perf_counter() - start,
        }
        pl_module.log_dict(values, rank_zero_only=True)

    def _give_up(self, error: Exception) -> None:
        self._failed = True
        reason = " ".join(str(error).split()) or type(error).__name__
        if not isinstance(error, InputError):
            reason += "; attribute=… says what is measured, inputs=… on what, output='sum' asks for no labels"
        rank_zero_warn(f"NTKMonitor measures nothing in this run: {reason}")

    def measure(self, pl_module: pl.LightningModule) -> Kernel:
        """Return the current kernel of the measured network."""
        assert self.batch is not None, "there is no batch before the training begins"
        x, y = (part.to(pl_module.device) for part in self.batch)
        if x.is_floating_point():
            x = x.to(next(pl_module.parameters(), x).dtype)
        return ntk(self._network(pl_module), (x, y), output=self.output)

    def _network(self, pl_module: Any) -> nn.Module:
        if self.network is None:
            return pl_module if self.attribute is None else attrgetter(self.attribute)(pl_module)
        with torch.random.fork_rng(devices=[]):  # layers draw their first weights from the global generator
            network = self.network(pl_module.derive()[0]).to(pl_module.device)
        initialize(network, self.scheme, torch.Generator().manual_seed(self.seed))
        return network

    def state_dict(self) -> dict[str, Any]:
        """Return the batch, so that a resumed run measures on the same one."""
        return {} if self.batch is None else {"x": self.batch[0].cpu(), "y": self.batch[1].cpu()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict:
            self.batch = state_dict["x"], state_dict["y"]


def first_pair(batch: Any) -> Batch:
    """Return the first (inputs, labels) in a batch.

    Mappings have them under the usual names. Sequences start with the pair, or have it in their first entry,
    such as the batches of several loaders.

    >>> x, y = torch.zeros(2, 3), torch.zeros(2)
    >>> [first_pair(batch)[0] is x for batch in ((x, y), {"valid": (x, y)}, {"pixel_values": x, "labels": y})]
    [True, True, True]
    """
    while isinstance(batch, (Mapping, list, tuple)) and len(batch):
        if isinstance(batch, Mapping):
            names = [next((name for name in known if name in batch), None) for known in (INPUTS, TARGETS)]
            if None not in names and all(getattr(batch[name], "ndim", 0) for name in names):
                return batch[names[0]], batch[names[1]]
            batch = next(iter(batch.values()))
        elif len(batch) >= 2 and all(isinstance(part, Tensor) for part in batch[:2]):
            return batch[0], batch[1]
        else:
            batch = batch[0]
    raise InputError("Batches must be (inputs, labels), or a mapping of them", got=type(batch).__name__)


class ConvergenceRate(pl.Callback):
    """Logs λ of theorem 1 of PR-DARTS (arXiv:2006.16537) for every group and epoch.

    `convergence_rate/<group>` is λ/λ₀, with λ₀ that of equal shares; `…/skip_<group>` and `…/conv_<group>`
    are the mean shares of skips on shared edges and of convolutions into the last node. Shares are those of
    the scores of the strategy, among operations other than `none`, so that strategies can be compared.

    >>> from nas_lightning.data import Fake, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> from nas_lightning.strategies import Darts
    >>> space, data = NasBench201(), SearchData(Fake(train_size=32))
    >>> search = Darts(space, space.supernet(in_channels=3, num_classes=4, channels=2, cells=1))
    >>> off = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    >>> quiet = {"accelerator": "cpu", **dict.fromkeys(off, False)}
    >>> trainer = pl.Trainer(max_epochs=1, callbacks=[ConvergenceRate()], **quiet)
    >>> trainer.fit(search, data)
    >>> [name for name in trainer.callback_metrics if name.startswith("convergence_rate")]
    ['convergence_rate/cell', 'convergence_rate/skip_cell', 'convergence_rate/conv_cell']
    """

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        strategy = _scoring(pl_module)
        for group in strategy.space.groups.values():
            check(group)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        strategy = _scoring(pl_module)
        rates = {}
        for name, scores in strategy.scores().items():
            group = strategy.space.groups[name]
            rate = convergence_rate(_shares(scores, group), group)
            equal = convergence_rate(_shares(torch.ones_like(scores), group), group)
            rates[f"convergence_rate/{name}"] = rate.value / equal.value
            rates[f"convergence_rate/skip_{name}"] = rate.skip
            rates[f"convergence_rate/conv_{name}"] = rate.conv
        pl_module.log_dict(rates, sync_dist=True)  # equal on all processes


def _shares(scores: Tensor, group: Group) -> Tensor:
    """Return the share of each operation other than `none` of its edge, of shape (edges, ops)."""
    left = without_none(scores, group)
    return left / left.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(scores.dtype).tiny)


def _scoring(module: pl.LightningModule) -> Strategy:
    if not isinstance(module, Strategy) or not module.scores():
        raise InputError(
            "The strategy must score operations", got=type(module).__name__, where="ConvergenceRate"
        )
    return module


# Agreement of architecture parameters and shared weights
#
# Roberts et al. 2022: random architectures are ranked by their likelihood under the architecture parameters,
# and by their validation losses with the weights of the supernet.


class SharedWeightRanking(pl.Callback):
    """Logs `ranking/kendall_tau` of both rankings and `ranking/seconds` every few epochs.

    Args:
        every_n_epochs: the interval.
        architectures: their number n; without agreement, τ has a standard deviation of about 2/(3√n).
        valid_batches: the number of batches for each architecture.
        seed: of the architectures, which are the same each time.

    >>> callback = SharedWeightRanking(every_n_epochs=10, architectures=50)
    >>> round(2 / (3 * callback.architectures**0.5), 2)  # standard deviation without agreement
    0.09
    """

    @checked
    def __init__(
        self,
        every_n_epochs: PositiveInt = 5,
        architectures: Annotated[int, at_least(2)] = 20,
        valid_batches: PositiveInt = 2,
        seed: Seed = 0,
    ) -> None:
        self.every_n_epochs, self.architectures = every_n_epochs, architectures
        self.valid_batches, self.seed = valid_batches, seed

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        _parts(trainer, pl_module)  # raises

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if (trainer.current_epoch + 1) % self.every_n_epochs:
            return
        strategy, data = _parts(trainer, pl_module)
        start = time.process_time()
        generator = torch.Generator().manual_seed(self.seed)
        drawn = [strategy.space.sample(generator) for _ in range(self.architectures)]
        batches = list(place_batches(strategy.supernet, data.valid_batches(self.valid_batches)))
        scores = strategy.scores()
        by_score = [log_likelihood(strategy.space, scores, genotype) for genotype in drawn]
        by_loss = [judge_genotype(strategy.space, strategy.supernet, g, batches).loss for g in drawn]
        pl_module.log("ranking/kendall_tau", kendall_tau(by_score, by_loss))
        pl_module.log("ranking/seconds", time.process_time() - start)


def _parts(trainer: pl.Trainer, module: pl.LightningModule) -> tuple[OneShot, SearchData]:
    data = trainer.datamodule  # type: ignore[attr-defined]
    if not isinstance(module, OneShot) or not module.arch_list or not isinstance(data, SearchData):
        raise InputError(
            "This callback needs a one-shot strategy with architecture parameters, fitted with SearchData",
            got=type(module).__name__,
            where="SharedWeightRanking",
        )
    return module, data


class GenotypeHistory(pl.Callback):
    """Appends a line {"epoch", "genotypes", "groups": {name: {"edges", "ops", "scores"}}} after every epoch.

    It also logs `depth/<cell>`, `width/<cell>`, and `skips/<cell>` of the (first) genotype, see
    `nas_lightning.spaces.topology`.

    The scores are those that the strategy derives genotypes from, of shape (edges, ops), with six digits; a
    strategy without scores has no groups. A resumed run removes the epochs that it repeats. At the end of the
    search, figures of genotypes and weights are saved in `folder`/figures.

    Args:
        folder: of the run.
        figures: whether to save figures.

    >>> history = GenotypeHistory("my_run", figures=False)
    >>> history.path.as_posix()
    'my_run/history.jsonl'
    """

    @checked
    def __init__(self, folder: str | Path, figures: bool = True) -> None:
        self.path = Path(folder) / HISTORY_FILE
        self.figures = figures

    @rank_zero_only
    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.path.is_file():
            kept = [entry for entry in read_history(self.path) if entry["epoch"] < trainer.current_epoch]
            write_whole(self.path, "".join(history_line(entry) for entry in kept))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        strategy = cast("Strategy", pl_module)
        groups = {}
        for name, scores in strategy.scores().items():
            group = strategy.space.groups[name]
            by_name = group.by_name(scores.detach()).tolist()
            table = [[round(score, 6) for score in row] for row in by_name]
            groups[name] = {"edges": group.rows, "ops": group.ops, "scores": table}
        genotypes = strategy.derive()
        if genotypes:
            pl_module.log_dict(topology_metrics(genotypes[0]), sync_dist=True)  # equal on all processes
        entry = {"epoch": trainer.current_epoch, "genotypes": [genotype.to_dict() for genotype in genotypes]}
        self._append({**entry, "groups": groups})

    @rank_zero_only
    def _append(self, entry: Mapping[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(history_line(entry))

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.figures:
            from nas_lightning.plots.charts import MOST_POINTS
            from nas_lightning.plots.files import save_genotypes, save_weights

            strategy = cast("Strategy", pl_module)
            front = strategy.front()
            genotypes = strategy.derive() if front is None else [front.genotypes[front.knee]]
            if trainer.is_global_zero:
                folder = self.path.parent / FIGURES
                save_genotypes(genotypes, folder)
                if self.path.is_file():  # not after a search of no epochs
                    save_weights(read_history(self.path, MOST_POINTS), folder)


class OutputRecorder(pl.Callback):
    """Keeps the class probabilities of a test and the true classes, of all processes.

    Args:
        most: maximum number of probabilities; larger tests keep none.

    >>> recorder = OutputRecorder()
    >>> recorder.add(torch.zeros(1, 4), torch.tensor([3]))
    >>> recorder.collect()
    (tensor([[0.2500, 0.2500, 0.2500, 0.2500]]), tensor([3]))
    """

    @checked
    def __init__(self, most: PositiveInt = 20_000_000) -> None:
        self.most = most
        self._parts: list[tuple[Tensor, Tensor]] = []
        self._count = 0

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch: logits of shape (b, classes) and labels of shape (b,)."""
        self._count += logits.numel()
        if self._count <= self.most:
            self._parts.append((logits.detach().float().softmax(dim=1).cpu(), labels.cpu()))

    def collect(self) -> tuple[Tensor, Tensor] | None:
        """Return probabilities (n, classes) and true classes (n,); None if there are none, or too many.

        All processes must call it.
        """
        shares = [(self._parts, self._count)]
        if distributed.is_available() and distributed.is_initialized():
            shares = shares * distributed.get_world_size()
            distributed.all_gather_object(shares, (self._parts, self._count))
        parts = [part for share, _ in shares for part in share]
        if not parts or any(count > self.most for _, count in shares):
            return None
        probabilities, truth = zip(*parts, strict=True)
        return torch.cat(probabilities), torch.cat(truth)

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._parts, self._count = [], 0

    def on_test_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, *place: int
    ) -> None:
        if isinstance(outputs, Tensor) and isinstance(task_of(pl_module.network), MultiClass):
            self.add(outputs, batch[1])


ROUNDS_FILE = "rounds.json"


class SaveRounds(pl.Callback):
    """Writes all rounds of a search for an ensemble: members, losses, accuracies, δ; the best is marked.

    Args:
        folder: of the run.

    >>> SaveRounds("my_run").path.as_posix()
    'my_run/rounds.json'
    """

    @checked
    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / ROUNDS_FILE

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not isinstance(pl_module, Nesbs):
            raise InputError(
                "This callback needs strategy=nesbs", got=type(pl_module).__name__, where="callbacks.rounds"
            )
        if trainer.is_global_zero:
            best = min(pl_module.rounds_done, key=lambda done: done.loss, default=None)
            entries = [{**done.to_dict(), "selected": done is best} for done in pl_module.rounds_done]
            text = json_text({"sampler": pl_module.sampling.sampler, "rounds": entries}, 2)
            write_whole(self.path, text + "\n")
