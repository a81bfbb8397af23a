"""Ensemble plans: which networks are trained for an ensemble, and how members are chosen."""

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
from nas_lightning.models.evaluation import Batch, Evaluation, averaged_loss, evaluate, forward_selection
from nas_lightning.models.file import FILE_NAME
from nas_lightning.spaces.base import SearchSpace, draw_distinct
from nas_lightning.utils.tables import Entry, Table
from nas_lightning.validation import Between0And1, at_least, at_most, checked

# Which networks of a trained pool make the ensemble (Zaidi et al. 2021, arXiv:2006.08573, section 4.1).
#
# Forward selection: begin with nothing, and add the network that lowers the loss of the averaged prediction
# most, on images that none was trained on.


@dataclass(frozen=True)
class MemberSelection:
    """What forward selection took.

    Args:
        pool: what every candidate predicts for the held-out images.
        chosen: the candidates' numbers from 0, in the order in which they were taken.
        losses: of the averaged prediction after each.
        names: of the candidates, in the table.
    """

    pool: Evaluation
    chosen: tuple[int, ...]
    losses: tuple[float, ...]
    names: tuple[str, ...] = ()

    @property
    def together(self) -> Evaluation:
        """Those that were taken."""
        return Evaluation(self.pool.probabilities[list(self.chosen)], self.pool.labels)

    def table(self) -> Table:
        """Every candidate with its numbers, and what those that were taken came to."""
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
    """`size` of the candidates by forward selection.

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
    """What the networks of these runs predict; one of them is in memory at a time; `own` as in `load`."""
    found = [evaluate(Ensemble.of_runs([run], **own).to(device), batches) for run in runs]
    return Evaluation(torch.cat([alone.probabilities for alone in found]), found[0].labels)


# Which networks an ensemble is made of: what is trained for it, and how what was trained is put together.

Several = Annotated[int, at_least(2), at_most(1000)]


class Member(NamedTuple):
    """A network to train."""

    architecture: int
    """Its number among those of the genotype file."""
    further_seed: int
    """What is added to the run's seed."""


class Plan(ABC):
    """What `ensemble=` chooses; a new one is one class and one yaml in `conf/ensemble`."""

    trains = True
    """Whether it has anything to train."""
    space: str | None = None
    """The space that it draws architectures from; None: the user names them."""
    selects: int | None = None
    """How many of the trained networks it keeps, judged on held-out images; None: all."""

    def draw(self, space: SearchSpace) -> list[Genotype]:
        """The architectures, where it has a space."""
        return []

    @abstractmethod
    def members(self, index: int, count: int) -> list[Member]:
        """What to train, with the architecture that was chosen out of how many there are."""

    def assemble(self, runs: Sequence[Path], **own: Any) -> Ensemble:
        """The ensemble of the networks that these runs trained; `own` as in `nas_lightning.load`."""
        return Ensemble.of_runs(runs, **own)


class EveryArchitecture(Plan):
    """Each architecture of a genotype file once, each with a seed of its own.

    >>> EveryArchitecture().members(index=0, count=3)[1]
    Member(architecture=1, further_seed=1)
    """

    def members(self, index: int, count: int) -> list[Member]:
        if count < 2:
            raise InputError(
                "expected a file of several architectures, such as a run of strategy=nesbs, or ensemble=deep",
                got=count,
                where="genotype",
            )
        if index:
            raise InputError(
                "expected no genotype.index with ensemble=all, which takes each", got=index, where="genotype"
            )
        return [Member(i, i) for i in range(count)]


class RandomPool(Plan):
    """Random architectures, trained; of these the ones that are good together (NES-RS).

    Zaidi et al. 2021 (arXiv:2006.08573), section 4.1. With as many members as architectures nothing is left
    to select: a random ensemble (URS).

    Args:
        space: the name of the space.
        pool: architectures that are drawn, each another, and trained, each from a seed of its own.
        size: members that forward selection takes.
        seed: of what is drawn.

    >>> from nas_lightning.spaces import NasBench201
    >>> plan = RandomPool("nasbench201", pool=4, size=2)
    >>> len(plan.draw(NasBench201())), plan.selects
    (4, 2)
    """

    @checked
    def __init__(self, space: str, pool: Several = 10, size: Several = 3, seed: int = 0) -> None:
        if pool < size:
            raise InputError(f"expected pool of at least {size}, the size", got=pool, where="ensemble.pool")
        self.space, self.pool, self.seed = space, pool, seed
        self.selects = size if size < pool else None

    def draw(self, space: SearchSpace) -> list[Genotype]:
        try:
            return draw_distinct(space, self.pool, torch.Generator().manual_seed(self.seed))
        except InputError:
            expected = f"expected fewer architectures: {space.name} has not as many"
            raise InputError(expected, got=self.pool, where="ensemble.pool") from None

    def members(self, index: int, count: int) -> list[Member]:
        return [Member(i, i) for i in range(count)]


class SeveralSeeds(Plan):
    """One architecture, trained several times (Lakshminarayanan et al. 2017, arXiv:1612.01474).

    Args:
        count: networks, whose seeds are the run's and the following.

    >>> SeveralSeeds(count=2).members(index=5, count=9)
    [Member(architecture=5, further_seed=0), Member(architecture=5, further_seed=1)]
    """

    @checked
    def __init__(self, count: Several = 3) -> None:
        self.count = count

    def members(self, index: int, count: int) -> list[Member]:
        return [Member(index, number) for number in range(self.count)]


class DropPathPasses(Plan):
    """One network, several passes with paths dropped; see `McDropPath`.

    Args:
        rate: at which each operation is dropped from an image.
        passes: predictions that are averaged.

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
    """Networks that there are already.

    Args:
        runs: folders of runs of `train.py`, or of sweeps, whose runs are all taken.

    >>> TrainedRuns("no_such_sweep")
    Traceback (most recent call last):
        ...
    nas_lightning.errors.InputError: expected a run of train.py, or a sweep, got ...
    """

    trains = False

    @checked
    def __init__(self, runs: Sequence[str] | str) -> None:
        given = [runs] if isinstance(runs, str) else list(runs)
        self.runs = [run for folder in given for run in _runs_in(Path(folder))]
        if len(self.runs) < 2:
            raise InputError("expected at least two trained networks", got=given, where="ensemble.runs")

    def members(self, index: int, count: int) -> list[Member]:
        return []

    def assemble(self, runs: Sequence[Path], **own: Any) -> Ensemble:
        return super().assemble([*runs, *self.runs], **own)


def _runs_in(folder: Path) -> list[Path]:
    """The folder, or those in it that have a trained network: a sweep's by their numbers."""
    if folder.is_file() or (folder / FILE_NAME).is_file():
        return [folder]
    found = sorted(folder.glob(f"*/{FILE_NAME}"), key=lambda path: (len(path.parent.name), path.parent.name))
    if not found:
        raise InputError("expected a run of train.py, or a sweep", got=str(folder), where="ensemble.runs")
    return [path.parent for path in found]
