"""Ensemble plans: the networks trained for an ensemble, and the selection of its members."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch

from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.models.ensemble import Ensemble, McDropPath, Passes
from nas_lightning.models.evaluation import Batch, Evaluation, evaluate
from nas_lightning.models.file import FILE_NAME
from nas_lightning.objectives.inherited import averaged_loss, forward_selection
from nas_lightning.spaces.base import SearchSpace, draw_distinct
from nas_lightning.utils.tables import Entry, Table
from nas_lightning.validation import Between0And1, at_least, at_most, checked

# Forward selection from a trained pool (Zaidi et al. 2021, arXiv:2006.08573, section 4.1): repeatedly add the
# network that lowers the loss of the averaged prediction on held-out images most.


@dataclass(frozen=True)
class MemberSelection:
    """The result of forward selection.

    Args:
        pool: predictions of all candidates for the held-out images.
        chosen: indices of the chosen candidates, in order.
        losses: loss of the averaged prediction after each.
        names: names of the candidates, for the table.
    """

    pool: Evaluation
    chosen: tuple[int, ...]
    losses: tuple[float, ...]
    names: tuple[str, ...] = ()

    @property
    def together(self) -> Evaluation:
        """The chosen candidates."""
        return Evaluation(self.pool.probabilities[list(self.chosen)], self.pool.labels)

    def table(self) -> Table:
        """Return a row for each candidate, with the ensemble's loss for the chosen ones."""
        rows: list[list[Entry]] = []
        for number, alone in enumerate(self.pool.members):
            place = self.chosen.index(number) if number in self.chosen else None
            taken: list[Entry] = ["", None] if place is None else [f"member {place + 1}", self.losses[place]]
            name = self.names[number] if self.names else f"candidate {number + 1}"
            rows.append([name, alone.error, alone.nll, *taken])
        count = len(self.pool.labels)
        return Table(
            "pool",
            f"{len(self.chosen)} of {len(rows)} candidates, selected on {count:,} held-out images",
            ["", "error", "NLL", "taken as", "NLL with those before"],
            rows,
        )


def select(pool: Evaluation, size: int, names: Sequence[str] = ()) -> MemberSelection:
    """Choose `size` candidates by forward selection.

    >>> p = torch.tensor([[[0.8, 0.2], [0.7, 0.3]], [[0.7, 0.3], [0.7, 0.3]], [[0.3, 0.7], [0.1, 0.9]]])
    >>> select(Evaluation(p, torch.tensor([0, 1])), 2).chosen
    (2, 0)
    """

    def loss(members: Sequence[int]) -> float:
        found = float(averaged_loss(pool.probabilities[list(members)], pool.labels))
        return math.inf if math.isnan(found) else found  # of a network whose training diverged

    chosen = forward_selection(range(len(pool.probabilities)), size, loss)
    losses = [loss(chosen[: number + 1]) for number in range(size)]
    return MemberSelection(pool, tuple(chosen), tuple(losses), tuple(names))


def predictions(
    runs: Sequence[Path], batches: Sequence[Batch], device: torch.device, **own: Any
) -> Evaluation:
    """Return the predictions of the runs' networks, one of which is in memory at a time.

    Args:
        runs: folders of runs.
        batches: images and labels.
        device: where to predict.
        **own: arguments of `nas_lightning.load`.
    """
    found = [evaluate(Ensemble.of_runs([run], **own).to(device), batches) for run in runs]
    return Evaluation(torch.cat([alone.probabilities for alone in found]), found[0].labels)


# Plans

Several = Annotated[int, at_least(2), at_most(1000)]


class Member(NamedTuple):
    """A network to train."""

    architecture: int
    """Index in the genotype file."""
    further_seed: int
    """Added to the run's seed."""


class Plan(ABC):
    """The networks of an ensemble; to add one, write a class and a yaml in `conf/ensemble`."""

    trains = True
    """Whether networks are trained."""
    space: str | None = None
    """The space from which architectures are drawn; None: a genotype file names them."""
    selects: int | None = None
    """How many networks forward selection keeps; None: all."""

    def draw(self, space: SearchSpace) -> list[Genotype]:
        """Return random architectures, if the plan has a space."""
        return []

    @abstractmethod
    def members(self, index: int, count: int) -> list[Member]:
        """Return the networks to train.

        Args:
            index: the chosen architecture of the genotype file.
            count: number of architectures in the file.
        """

    def assemble(self, runs: Sequence[Path], **own: Any) -> Ensemble:
        """Return the ensemble of trained runs; `own` are arguments of `nas_lightning.load`."""
        return Ensemble.of_runs(runs, **own)


class EveryArchitecture(Plan):
    """Every architecture of a genotype file, each with another seed.

    >>> EveryArchitecture().members(index=0, count=3)[1]
    Member(architecture=1, further_seed=1)
    """

    def members(self, index: int, count: int) -> list[Member]:
        if count < 2:
            raise InputError(
                "ensemble=all needs a file of several architectures, such as a run of strategy=nesbs",
                got=count,
                where="genotype",
            )
        if index:
            raise InputError(
                "ensemble=all takes each architecture: leave out genotype.index", got=index, where="genotype"
            )
        return [Member(i, i) for i in range(count)]


class RandomPool(Plan):
    """Forward selection from trained random architectures: NES-RS (Zaidi et al. 2021, arXiv:2006.08573).

    With `size=pool` it is a random ensemble (URS).

    Args:
        space: name of the space.
        pool: number of distinct random architectures that are trained, each with another seed.
        size: number of members that forward selection chooses.
        seed: seed of the random architectures.

    >>> from nas_lightning.spaces import NasBench201
    >>> plan = RandomPool("nasbench201", pool=4, size=2)
    >>> len(plan.draw(NasBench201())), plan.selects
    (4, 2)
    """

    @checked
    def __init__(self, space: str, pool: Several = 10, size: Several = 3, seed: int = 0) -> None:
        if pool < size:
            raise InputError(
                f"`pool` must be at least `size`, which is {size}", got=pool, where="ensemble.pool"
            )
        self.space, self.pool, self.seed = space, pool, seed
        self.selects = size if size < pool else None

    def draw(self, space: SearchSpace) -> list[Genotype]:
        try:
            return draw_distinct(space, self.pool, torch.Generator().manual_seed(self.seed))
        except InputError:
            expected = f"{space.name} does not have so many architectures"
            raise InputError(expected, got=self.pool, where="ensemble.pool") from None

    def members(self, index: int, count: int) -> list[Member]:
        return [Member(i, i) for i in range(count)]


class SeveralSeeds(Plan):
    """One architecture, trained several times (Lakshminarayanan et al. 2017, arXiv:1612.01474).

    Args:
        count: number of networks, with consecutive seeds from the run's on.

    >>> SeveralSeeds(count=2).members(index=5, count=9)
    [Member(architecture=5, further_seed=0), Member(architecture=5, further_seed=1)]
    """

    @checked
    def __init__(self, count: Several = 3) -> None:
        self.count = count

    def members(self, index: int, count: int) -> list[Member]:
        return [Member(index, number) for number in range(self.count)]


class DropPathPasses(Plan):
    """One network and several passes with drop path; see `McDropPath`.

    Args:
        rate: probability with which an operation is dropped for an image.
        passes: number of averaged predictions.

    >>> DropPathPasses(rate=0.05, passes=20).members(index=0, count=1)
    [Member(architecture=0, further_seed=0)]
    """

    @checked
    def __init__(self, rate: Between0And1 = 0.01, passes: Passes = 10) -> None:
        self.rate, self.passes = rate, passes

    def members(self, index: int, count: int) -> list[Member]:
        return [Member(index, 0)]

    def assemble(self, runs: Sequence[Path], **own: Any) -> Ensemble:
        one = Ensemble.of_runs(runs, **own)
        return McDropPath(one.members[0], one.descriptions, rate=self.rate, passes=self.passes).eval()


class TrainedRuns(Plan):
    """Networks that are trained already.

    Args:
        runs: folders of runs of `nas-train`, or of sweeps of them.

    >>> TrainedRuns("no_such_sweep")
    Traceback (most recent call last):
        ...
    nas_lightning.errors.InputError: The path must be a run of nas-train or a sweep, got ...
    """

    trains = False

    @checked
    def __init__(self, runs: Sequence[str] | str) -> None:
        given = [runs] if isinstance(runs, str) else list(runs)
        self.runs = [run for folder in given for run in _runs_in(Path(folder))]
        if len(self.runs) < 2:
            raise InputError("There must be at least two trained networks", got=given, where="ensemble.runs")

    def members(self, index: int, count: int) -> list[Member]:
        return []

    def assemble(self, runs: Sequence[Path], **own: Any) -> Ensemble:
        return super().assemble([*runs, *self.runs], **own)


def _runs_in(folder: Path) -> list[Path]:
    """Return the folder, or a sweep's folders with a trained network in order of their numbers."""
    if folder.is_file() or (folder / FILE_NAME).is_file():
        return [folder]
    found = sorted(folder.glob(f"*/{FILE_NAME}"), key=lambda path: (len(path.parent.name), path.parent.name))
    if not found:
        raise InputError(
            "The path must be a run of nas-train or a sweep", got=str(folder), where="ensemble.runs"
        )
    return [path.parent for path in found]
