"""Comparison of ensembles: accuracy and diversity of their members (Shu 2022, thesis, table 5.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure
from torch import nn

from nas_lightning.data import SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.models.ensemble import Ensemble
from nas_lightning.models.evaluation import Evaluation, check_images, evaluate, every_test_batch
from nas_lightning.plots.style import COLORS, INK, label_axes, tidy
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.studies.base import Study
from nas_lightning.studies.scoring import draw_genotypes
from nas_lightning.studies.training import train_networks
from nas_lightning.training.retrain import Retrain
from nas_lightning.utils.devices import CPU
from nas_lightning.utils.tables import Entry, Table
from nas_lightning.validation import Seed, at_least, checked

PERCENT = {
    "error": "error",
    "best_member_error": "best member's",
    "ate": "ATE",
    "ppd": "PPD",
    "oracle_error": "all wrong",
    "calibration_error": "calibration error",
}
_NOTE = (
    "In percent, but the NLL. ATE: mean error of the members; PPD: images on which two of them disagree, "
    "mean over pairs; all wrong: images that no member gets right"
)


class EnsembleComparison(Study):
    """Compare ensembles on the same test images.

    Args:
        runs: folders of runs of `nas-train ensemble=…`, by name; None: train two ensembles with the study's
            `retrain`, `trainer`, and `network`: one random architecture with several seeds, and several
            random architectures.
        members: members of each of these two.
        seed: seed of the architectures.

    >>> EnsembleComparison(runs={"NESBS": "outputs/train/nesbs"}).runs
    {'NESBS': PosixPath('outputs/train/nesbs')}
    """

    @checked
    def __init__(
        self,
        *,
        runs: Mapping[str, str | Path] | None = None,
        members: Annotated[int, at_least(2)] = 3,
        seed: Seed = 0,
    ) -> None:
        self.runs = {name: Path(folder) for name, folder in (runs or {}).items()}
        self.members, self.seed = members, seed

    def run(
        self,
        space: SearchSpace,
        network: Callable[[Genotype], nn.Module],
        data: SearchData,
        retrain: Callable[[nn.Module], Retrain],
        trainer: Callable[..., pl.Trainer],
        folder: Path,
        accelerator: torch.device = CPU,
    ) -> Findings:
        """Load or train the ensembles, and evaluate all of them."""

        def train(genotypes: Sequence[Genotype], name: str) -> Ensemble:
            to = folder / "trained" / name
            return Ensemble(train_networks(genotypes, network, data, retrain, trainer, to, self.seed))

        found = dict(self._load(data)) if self.runs else dict(self._train(space, train))
        batches = every_test_batch(data.data)
        evaluations = {name: evaluate(one.to(accelerator), batches) for name, one in found.items()}
        rows: list[list[Entry]] = [[name, *_numbers(one)] for name, one in evaluations.items()]
        columns = ["ensemble", "members", *PERCENT.values(), "NLL"]
        title = f"Ensembles on {len(next(iter(evaluations.values())).labels):,} test images of {data.name}"
        table = Table("ensembles", title, columns, rows, _NOTE)
        return Findings([table], {"ensembles": _figure(evaluations)})

    def _load(self, data: SearchData) -> Iterator[tuple[str, Ensemble]]:
        for name, run in self.runs.items():
            ensemble = Ensemble.load(run)
            check_images(ensemble, data.data)
            yield name, ensemble

    def _train(
        self, space: SearchSpace, train: Callable[[Sequence[Genotype], str], Ensemble]
    ) -> Iterator[tuple[str, Ensemble]]:
        several = draw_genotypes(space, self.members, self.seed)
        yield "one architecture", train(several[:1] * self.members, "one")
        yield "random architectures", train(several, "several")


def _numbers(found: Evaluation) -> list[Entry]:
    numbers = found.numbers()
    return [len(found.probabilities), *(100 * numbers[name] for name in PERCENT), numbers["nll"]]


def _figure(evaluations: Mapping[str, Evaluation]) -> Figure:
    """Draw ATE against PPD, with the error of each ensemble."""
    figure = Figure(figsize=(3.6, 2.8), layout="constrained")
    axes = figure.subplots()
    tidy(axes)
    axes.margins(x=0.35, y=0.2)
    for number, (name, found) in enumerate(evaluations.items()):
        numbers = found.numbers()
        place = (100 * numbers["ate"], 100 * numbers["ppd"])
        axes.plot(*place, "o", color=COLORS[number % len(COLORS)], markersize=5)
        text = f"{name}\n{100 * numbers['error']:.1f} % together"
        axes.annotate(text, place, (0, 5), textcoords="offset points", ha="center", fontsize=7, color=INK)
    label_axes(axes, "mean error of the members, ATE (%)", "disagreement of two, PPD (%)")
    return figure
