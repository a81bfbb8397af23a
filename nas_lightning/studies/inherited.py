"""Whether inherited weights tell good ensembles from bad ones (Shu 2022, thesis, section 5.5.1, table 5.6).

Architectures are judged with a supernet's weights on validation images, then trained from scratch and judged
on test images, alone and in every ensemble of so many of them. The correlations are over these ensembles,
which share their members: the number of architectures, not of ensembles, says how far they can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import isnan
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from nas_lightning.checks import (
    DISTINCT,
    Between0And1,
    PositiveFloat,
    PositiveInt,
    Seed,
    at_least,
    checked,
    entries,
)
from nas_lightning.data import SearchData
from nas_lightning.ensembles.ensemble import Ensemble
from nas_lightning.ensembles.evaluation import ensemble_error, evaluate, every_test_batch
from nas_lightning.ensembles.forward_selection import InheritedWeights, averaged_loss
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.plots.style import COLOURS, INK, tidy
from nas_lightning.progress import follow
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.oneshot.papers.random_ws import RandomWS
from nas_lightning.studies.base import Study
from nas_lightning.studies.pools import draw_genotypes
from nas_lightning.studies.statistics import Values, pearson, spearman
from nas_lightning.studies.training import fit_quietly, train_networks, train_once
from nas_lightning.tables import Entry, Table
from nas_lightning.training.retrain import Retrain

MEASURES = {"error": ensemble_error, "loss": averaged_loss}


class Inherited(Study):
    """Estimated against true performance of architectures and of their ensembles.

    The supernet is trained by one path drawn uniformly in each step; the networks by the study's `retrain`
    and `trainer`, whose number of epochs is theirs.

    Args:
        architectures: that are trained, of diverse estimated losses.
        pool: that are drawn and judged with inherited weights; those trained stand at even distances in
            their order.
        sizes: of the ensembles; 1: the architectures themselves.
        supernet_epochs: of the supernet.
        supernet_lr: the learning rate that falls to 0 in them.
        top: the share of ensembles that Agreement-top looks at.
        seed: of what is drawn.

    >>> study = Inherited(architectures=5, pool=20, sizes=[1, 3])
    >>> list(study.wants())
    ['space', 'supernet', 'network', 'data', 'retrain', 'trainer', 'folder']
    """

    @checked
    def __init__(
        self,
        *,
        architectures: Annotated[int, at_least(3)] = 10,
        pool: PositiveInt = 100,
        sizes: Annotated[Sequence[PositiveInt], entries(1), DISTINCT] = (1, 3, 5, 7),
        supernet_epochs: PositiveInt = 50,
        supernet_lr: PositiveFloat = 0.1,
        top: Between0And1 = 0.3,
        seed: Seed = 0,
    ) -> None:
        if pool < architectures:
            raise InputError(
                f"expected at least the {architectures} architectures", got=pool, where="study.pool"
            )
        if max(sizes) >= architectures:
            raise InputError(f"expected sizes below {architectures}", got=list(sizes), where="study.sizes")
        self.architectures, self.pool, self.sizes = architectures, pool, list(sizes)
        self.supernet_epochs, self.supernet_lr = supernet_epochs, supernet_lr
        self.top, self.seed = top, seed

    def run(
        self,
        space: SearchSpace,
        supernet: Callable[[], Supernet],
        network: Callable[[Genotype], nn.Module],
        data: SearchData,
        retrain: Callable[[nn.Module], Retrain],
        trainer: Callable[..., pl.Trainer],
        folder: Path,
    ) -> Findings:
        """Train the supernet, choose, train what was chosen, correlate."""
        judge = self._train_judge(space, supernet, data, trainer, folder / "supernet.pt")
        chosen = self._choose(judge, space)
        networks = train_networks(chosen, network, data, retrain, trainer, folder / "trained", self.seed)
        true = evaluate(Ensemble(networks), every_test_batch(data.data))
        estimated = torch.stack([judge.predict(genotype) for genotype in chosen]).cpu()
        pairs_of = {
            name: {
                size: (
                    over_subsets(measure, estimated, judge.labels.cpu(), size),
                    over_subsets(measure, true.probabilities, true.labels, size),
                )
                for size in self.sizes
            }
            for name, measure in MEASURES.items()
        }
        return Findings(
            [
                *(self._table(name, pairs, data.name) for name, pairs in pairs_of.items()),
                self._each(chosen, pairs_of),
            ],
            {
                f"inherited_{name}": _figure(
                    pairs, f"estimated {name}, inherited weights", f"true {name}, trained from scratch"
                )
                for name, pairs in pairs_of.items()
            },
            {
                f"spearman/{name}/{size}": rho
                for name, pairs in pairs_of.items()
                for size, pair in pairs.items()
                if not isnan(rho := spearman(*pair))
            },
        )

    def _train_judge(
        self,
        space: SearchSpace,
        supernet: Callable[[], Supernet],
        data: SearchData,
        trainer: Callable[..., pl.Trainer],
        path: Path,
    ) -> InheritedWeights:
        """The supernet, trained, with the validation images."""
        pl.seed_everything(self.seed, workers=True, verbose=False)

        def train(shared: Supernet) -> Supernet:
            options: dict[str, Any] = {"candidates": 1, "valid_batches": 1, "lr_min": 0.0, "seed": self.seed}
            strategy = RandomWS(space, shared, data, lr=self.supernet_lr, **options)
            fit_quietly(trainer, strategy, data, max_epochs=self.supernet_epochs)
            return shared

        shared = train_once(supernet(), train, path, "the supernet")
        return InheritedWeights(space, shared, data.valid_batches(len(data.valid)))

    def _choose(self, judge: InheritedWeights, space: SearchSpace) -> list[Genotype]:
        """Architectures of the pool at even distances in the order of their estimated losses."""
        pool = draw_genotypes(space, self.pool, self.seed)
        losses = {genotype: judge.loss([genotype]) for genotype in follow(pool, "architectures")}
        pool.sort(key=lambda genotype: losses[genotype])
        places = np.linspace(0, len(pool) - 1, self.architectures).round().astype(int)
        return [pool[place] for place in places]

    def _table(self, name: str, pairs: dict[int, tuple[Values, Values]], data: str) -> Table:
        statistics = {
            "Spearman": spearman,
            "Pearson": pearson,
            f"Agreement-{self.top:.0%}": lambda x, y: agreement(x, y, self.top),
        }
        rows: list[list[Entry]] = [["ensembles", *(len(x) for x, _ in pairs.values())]]
        for statistic, function in statistics.items():
            values = [function(x, y) for x, y in pairs.values()]
            rows.append([statistic, *(None if isnan(value) else value for value in values)])
        return Table(
            name,
            f"Estimated against true {name}: {self.architectures} architectures on {data}",
            ["", *(f"n = {size}" for size in pairs)],
            rows,
            f"Agreement: the share of the {self.top:.0%} truly best that are among those estimated best",
        )

    def _each(
        self, chosen: Sequence[Genotype], pairs_of: dict[str, dict[int, tuple[Values, Values]]]
    ) -> Table:
        """The numbers of the architectures themselves, where they were asked for."""
        columns, values = ["architecture"], []
        for name, pairs in pairs_of.items():
            if 1 in pairs:
                columns += [f"estimated {name}", f"true {name}"]
                values += [part.tolist() for part in pairs[1]]
        rows = [[str(genotype), *numbers] for genotype, *numbers in zip(chosen, *values, strict=True)]
        return Table("architectures", "The architectures", columns, rows, long=True)


def _figure(pairs: dict[int, tuple[Values, Values]], x_label: str, y_label: str) -> Figure:
    """One panel a size, one point an ensemble."""
    figure = Figure(figsize=(2.5 * len(pairs), 2.6), layout="constrained")
    for axes, (size, (x, y)) in zip(
        figure.subplots(1, len(pairs), squeeze=False).flat, pairs.items(), strict=True
    ):
        tidy(axes)
        alpha = min(1.0, 60 / len(x) + 0.2)
        axes.plot(x, y, "o", color=COLOURS[0], markersize=3, alpha=alpha, markeredgewidth=0)
        axes.locator_params(nbins=5)
        rho = spearman(x, y)
        text = f"n = {size}" if isnan(rho) else f"n = {size}  ρ {rho:.2f}"
        axes.set_title(text, loc="left", fontsize=9, fontweight="bold", color=INK)
    figure.supxlabel(x_label, fontsize=8, color=INK)
    figure.supylabel(y_label, fontsize=8, color=INK)
    return figure


def over_subsets(
    measure: Callable[[Tensor, Tensor], Tensor], probabilities: Tensor, labels: Tensor, size: int
) -> Values:
    """The measure of every ensemble of `size` of the members, (members, images, classes) → (ensembles,)."""
    subsets = combinations(range(len(probabilities)), size)
    return np.array([float(measure(probabilities[list(subset)], labels)) for subset in subsets])


def agreement(x: Values, y: Values, share: float) -> float:
    """The share of the smallest values of x that are among the smallest of y; earlier ones first where equal.

    >>> agreement(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 4.0, 2.0, 3.0]), 0.5)
    0.5
    """
    count = max(1, round(share * len(x)))
    first, second = (set(np.argsort(values, kind="stable")[:count].tolist()) for values in (x, y))
    return len(first & second) / count
