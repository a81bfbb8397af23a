"""PR-DARTS (Zhou et al. 2020, arXiv:2006.16537)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.nn import functional as F

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Cell, Genotype, read_genotypes, write_genotypes
from nas_lightning.plots.cells import draw_topologies
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces import topology
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.spaces.operations import SKIP
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies import (
    ComputedPathDepth,
    ComputedSparsity,
    Darts,
    OneShot,
    PathDepth,
    PRDarts,
    PRDartsPublicCode,
    Sparsity,
)
from nas_lightning.studies import figures
from nas_lightning.studies.base import Study
from nas_lightning.studies.scoring import Values, estimate, mean_estimate, spearman
from nas_lightning.studies.training import fit_quietly
from nas_lightning.tasks import task_of
from nas_lightning.utils.files import parse_json, read_text
from nas_lightning.utils.progress import follow
from nas_lightning.utils.randomness import generator, seed_of
from nas_lightning.utils.tables import Entry, Table
from nas_lightning.validation import DISTINCT, PositiveFloat, PositiveInt, Seed, at_least, checked, entries
from reproductions.plain_training import Case, Curve, train_cases

# The cell of PR-DARTS' theorems as a module (Zhou et al. 2020, arXiv:2006.16537, equations 3 to 6).
#
#     X⁽⁰⁾ = conv(X),    conv(X) = σ(W ∗ X) / √m,    σ = softplus,    W ~ N(0, 1)
#     X⁽ˡ⁾ = Σ_{s<l} g_skip⁽ˢˡ⁾ X⁽ˢ⁾ + g_conv⁽ˢˡ⁾ conv_s⁽ˡ⁾(X⁽ˢ⁾)
#     u = Σ_s ⟨W_s, X⁽ˢ⁾⟩,    F = 1/(2n) Σ_i (u_i − y_i)²,    trained by gradient descent
#
# Images are sequences of p positions. The shallow cell B of theorem 4 has two branches, nodes 0 … h/2 − 1 and
# h/2 … h − 1, each fed by X alone; its gates are those of the deep cell A where it has the edge. By the
# theorem, up to a factor that both share,
#
#     λ_B ≥ λ_A + Σ_{s ≥ h/2} (g_conv⁽ˢ ʰ⁻¹⁾)² Π_{h/2 ≤ t < s} (g_skip⁽ᵗˢ⁾)²
#
# whose first term counts the edges from the first branch into the last node, which B does not have.


class Gates(NamedTuple):
    """Gates of the edges s → l at [s, l], above the diagonal, (h, h) each.

    Args:
        skip: g_skip.
        conv: g_conv.
    """

    skip: Tensor
    conv: Tensor

    def shallow(self) -> Gates:
        """Return the gates of cell B, without edges from the first branch to the second."""
        kept = torch.ones_like(self.skip)
        half = len(kept) // 2
        kept[:half, half:] = 0
        return Gates(self.skip * kept, self.conv * kept)


def draw_gates(nodes: int, generator: torch.Generator) -> Gates:
    """Draw gates independently and uniformly in (0, 1)."""
    both = torch.rand(2, nodes, nodes, dtype=torch.float64, generator=generator).triu(diagonal=1)
    return Gates(*both)


def rate(gates: Gates, first: int = 0) -> float:
    """Return λ = Σ_s (g_conv⁽ˢ ʰ⁻¹⁾)² Π_{t<s} (g_skip⁽ᵗˢ⁾)² of theorem 1, over the nodes from `first`."""
    last = len(gates.skip) - 1
    ends = range(first, last)
    return float(sum(gates.conv[s, last] ** 2 * gates.skip[first:s, s].square().prod() for s in ends))


def shallow_rate(gates: Gates) -> float:
    """Return λ_B of theorem 4, its lower bound, from the gates of cell A."""
    return rate(gates) + rate(gates, len(gates.skip) // 2)


class GatedCell:
    """The network of equation 5 with fixed gates and trained weights.

    Args:
        gates: gates of its edges.
        channels: m.
        positions: p.
        inputs: channels of the images.
        seed: seed of the weights; cells with the same sizes and seed have the same initial weights.
        branches: with 2, the second half of the nodes starts from X again.

    >>> gates = draw_gates(4, torch.Generator().manual_seed(0))
    >>> cell = GatedCell(gates, channels=8, positions=6, inputs=2, seed=0)
    >>> cell(torch.ones(3, 2, 6, dtype=torch.float64)).shape
    torch.Size([3])
    """

    def __init__(
        self, gates: Gates, *, channels: int, positions: int, inputs: int, seed: int, branches: int = 1
    ) -> None:
        random = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=random).requires_grad_()

        h = self.nodes = len(gates.skip)
        self.gates, self.starts = gates, {0, h // 2} if branches == 2 else {0}
        self.stems = [normal(channels, inputs, 3) for _ in range(2)]
        self.convs = {(s, l): normal(channels, channels, 3) for l in range(h) for s in range(l)}  # noqa: E741
        self.outputs = [normal(channels, positions) for _ in range(h)]

    @property
    def weights(self) -> list[Tensor]:
        """All trained weights."""
        return [*self.stems, *self.convs.values(), *self.outputs]

    def __call__(self, x: Tensor) -> Tensor:
        """Return u, (n, inputs, p) → (n,)."""
        nodes: list[Tensor] = []
        for l in range(self.nodes):  # noqa: E741, as in the paper
            if l in self.starts:
                nodes.append(_conv(self.stems[min(l, 1)], x))
                continue
            first = max(start for start in self.starts if start <= l)
            node = torch.zeros_like(nodes[0])
            for s in range(first, l):
                node = node + self.gates.skip[s, l] * nodes[s]
                node = node + self.gates.conv[s, l] * _conv(self.convs[s, l], nodes[s])
            nodes.append(node)
        parts = [torch.einsum("mp,nmp->n", W, node) for W, node in zip(self.outputs, nodes, strict=True)]
        return torch.stack(parts).sum(dim=0)


def _conv(W: Tensor, x: Tensor) -> Tensor:
    return F.softplus(F.conv1d(x, W, padding=1)) / len(W) ** 0.5


def losses(cell: GatedCell, x: Tensor, y: Tensor, *, steps: int, eta: float) -> list[float]:
    """Run gradient descent; return F before each step and after the last (equation 6)."""
    found = []
    for step in range(steps + 1):
        loss = 0.5 * (cell(x) - y).square().mean()
        found.append(float(loss.detach()))
        if step < steps:
            gradients = torch.autograd.grad(loss, cell.weights, allow_unused=True)
            with torch.no_grad():
                for W, gradient in zip(cell.weights, gradients, strict=True):
                    if gradient is not None:
                        W -= eta * gradient
    return found


# Whether skip connections speed up training (PR-DARTS, Zhou et al. 2020, arXiv:2006.16537, figure 2).

FILE = "curves.csv"
_SKIPS_NOTE = (
    "Means over the draws ± their standard errors; `less than` is the loss of the row above less this one's, "
    "draw by draw, averaged over the epochs: above 0 the skips were faster"
)


@checked
class SkipConvergence(Study):
    """Train cells of convolutions with a random share of them replaced by skips.

    Args:
        shares: shares of the operations that are skips.
        operation: the other operations.
        draws: number of random cells for each share; skips of a larger share include those of a smaller one.
        lr: initial learning rate.
        epochs: epochs of each training.
        seed: seed of cells, weights, and order.

    >>> study = SkipConvergence(shares=[0.0, 0.5], draws=1)
    >>> from nas_lightning.spaces import DartsSpace
    >>> [genotype.ops.count("skip_connect") for genotype in study.cells(DartsSpace(), 0).values()]
    [0, 8]
    """

    def __init__(
        self,
        *,
        shares: Annotated[Sequence[Annotated[float, at_least(0)]], entries(2), DISTINCT] = (
            0.0,
            0.375,
            0.625,
        ),
        operation: str = "sep_conv_3x3",
        draws: PositiveInt = 3,
        lr: PositiveFloat = 0.025,
        epochs: PositiveInt = 10,
        seed: Seed = 0,
    ) -> None:
        if max(shares) > 1:
            raise InputError("expected shares up to 1", got=list(shares), where="study.shares")
        self.shares, self.operation, self.draws = sorted(shares), operation, draws
        self.lr, self.epochs, self.seed = lr, epochs, seed

    def cells(self, space: SearchSpace, draw: int) -> dict[float, Genotype]:
        """Draw a topology, and return its genotype for each share."""
        random = generator(self.seed, draw)
        topology = space.sample(random)
        order = torch.randperm(len(topology.ops), generator=random).tolist()
        rank = {place: number for number, place in enumerate(order)}

        def replaced(share: float) -> Genotype:
            most, place, cells = round(share * len(order)), iter(range(len(order))), {}
            for name, cell in topology:
                ops = [SKIP if rank[next(place)] < most else self.operation for _ in cell.edges]
                edges = [(op, e.source, e.target) for op, e in zip(ops, cell.edges, strict=True)]
                cells[name] = Cell(edges, cell.inputs, cell.output)
            genotype = space.genotype_of(cells)
            space.check(genotype)
            return genotype

        return {share: replaced(share) for share in self.shares}

    def run(self, space: SearchSpace, network: NetworkFactory, data: SearchData, folder: Path) -> Findings:
        """Train the cells that are not in the file; compare their loss curves."""
        cases = {
            (draw, share): Case(f"draw {draw}, {share:.1%} skips", genotype, self.lr)
            for draw in range(self.draws)
            for share, genotype in self.cells(space, draw).items()
        }
        all_cases, options = list(cases.values()), {"epochs": self.epochs, "seed": self.seed}
        found = train_cases(all_cases, network, data, folder / FILE, **options)
        curves = {
            share: [found[cases[draw, share].name] for draw in range(self.draws)] for share in self.shares
        }
        what = f"{self.draws} draws in {space.name}, {self.epochs} epochs on {data.name}"
        return Findings(
            [_table(curves, what, task_of(data).score)],
            {"losses": figures.overlay(_panels(curves), "loss", "epoch")},
        )


def _table(curves: Mapping[float, Sequence[Curve]], what: str, score: str) -> Table:
    rows: list[list[Entry]] = []
    before: Values | None = None
    for share, some in curves.items():
        losses = np.array([curve.train_loss.mean() for curve in some])
        gain = None if before is None else mean_estimate(before - losses)
        ends = [mean_estimate([getattr(c, kind)[-1] for c in some]) for kind in ("train_loss", "score")]
        rows.append([f"{share:.1%}", *ends, mean_estimate(losses), gain])
        before = losses
    columns = ["skips", "last training loss", f"last {score}", "training loss", "less than"]
    return Table("skips", f"Skips and the speed of convergence: {what}", columns, rows, _SKIPS_NOTE)


def _panels(curves: Mapping[float, Sequence[Curve]]) -> dict[str, dict[str, Values]]:
    kinds = {"training loss": "train_loss", "loss of other images": "loss"}
    return {
        title: {
            f"{s:.1%} skips": np.mean([getattr(c, kind) for c in some], axis=0) for s, some in curves.items()
        }
        for title, kind in kinds.items()
    }


# What gates, sparsity, and the path term do to the derived cell (PR-DARTS, Zhou et al. 2020, figure 1).

RANDOM = "random cells"
SEARCHES: Mapping[str, Callable[..., OneShot]] = {
    "DARTS": Darts,
    "gates": partial(PRDarts, regularizer=None),
    "gates + sparsity": partial(PRDarts, regularizer=Sparsity()),
    "gates + path": partial(PRDarts, regularizer=PathDepth()),
    "PR-DARTS": PRDarts,
    "public code, gates": partial(PRDartsPublicCode, regularizer=None),
    "public code, gates + sparsity": partial(PRDartsPublicCode, regularizer=ComputedSparsity()),
    "public code, gates + path": partial(PRDartsPublicCode, regularizer=ComputedPathDepth()),
    "public code": PRDartsPublicCode,
}
"""The searches by name; with `random cells` in the study's table, drawn uniformly."""
_CELLS_NOTE = (
    "Of the normal cell; depth is the number of inner nodes on its longest path, width the sum over them of "
    "the share of their inputs that are the cell's"
)


class FoundCell(NamedTuple):
    """The result of a search.

    Args:
        genotype: the derived architecture.
        depths: depth of the normal cell that would be derived after each epoch.
    """

    genotype: Genotype
    depths: Sequence[int]

    @property
    def topology(self) -> tuple[float, float, float]:
        """Depth, width, and skips of the normal cell."""
        cell = self.genotype["normal"]
        return topology.depth(cell), float(topology.width(cell)), topology.skips(cell)


class DepthRecorder(pl.Callback):
    """Records the depth of the derivable normal cell after each epoch."""

    def __init__(self) -> None:
        self.depths: list[int] = []

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, OneShot)
        self.depths.append(topology.depth(pl_module.derive()[0]["normal"]))


@checked
class PathAblation(Study):
    """Search with each part of PR-DARTS, and train the derived cells for short and for long.

    Args:
        searches: names of `SEARCHES`.
        repetitions: searches by each, with other seeds, and random cells.
        arch_lr: learning rate of all searches' architecture parameters; large where the searches are short.
        epochs: lengths of the trainings of each cell; none: only search.
        lr: initial learning rate of the trainings.
        seed: seed of the first repetition; the others follow.

    >>> PathAblation(searches=["gates", "gates + path"], repetitions=2, epochs=[]).searches
    ['gates', 'gates + path']
    """

    def __init__(
        self,
        *,
        searches: Annotated[Sequence[str], entries(1), DISTINCT] = tuple(SEARCHES),
        repetitions: PositiveInt = 5,
        arch_lr: PositiveFloat = 0.025,
        epochs: Annotated[Sequence[PositiveInt], DISTINCT] = (5, 30),
        lr: PositiveFloat = 0.025,
        seed: Seed = 0,
    ) -> None:
        unknown = [name for name in searches if name not in SEARCHES]
        if unknown:
            expected = f"expected searches of {', '.join(SEARCHES)}"
            raise InputError(expected, got=unknown[0], where="study.searches")
        self.searches, self.repetitions, self.epochs = list(searches), repetitions, list(epochs)
        self.arch_lr, self.lr, self.seed = arch_lr, lr, seed

    def run(
        self,
        space: SearchSpace,
        supernet: Callable[..., Supernet],
        network: NetworkFactory,
        data: SearchData,
        trainer: Callable[..., pl.Trainer],
        folder: Path,
    ) -> Findings:
        """Run the searches and trainings that have no file yet."""
        if "normal" not in space.groups:
            raise InputError("expected a space with normal cells", got=space.name, where="space")
        repetitions, found = range(self.repetitions), dict[tuple[str, int], FoundCell]()
        jobs = [(name, number) for number in repetitions for name in self.searches]
        for name, number in follow(jobs, "searches"):
            path = folder / "searches" / f"{name.replace(' ', '_')}_{number}.json"
            found[name, number] = self._search(name, number, (space, supernet, data, trainer), path)
        for number in repetitions:
            genotype = space.sample(generator(self.seed, number))
            found[RANDOM, number] = FoundCell(genotype, [])
        cases = {key: Case(f"{key[0]} {key[1]}", cell.genotype, self.lr) for key, cell in found.items()}
        scores = {
            epochs: train_cases(
                list(cases.values()),
                network,
                data,
                folder / f"trainings_{epochs}.csv",
                epochs=epochs,
                seed=self.seed,
            )
            for epochs in self.epochs
        }
        accuracies = {
            key: [float(scores[epochs][case.name].score[-1]) for epochs in self.epochs]
            for key, case in cases.items()
        }
        curves = {
            name: np.mean([found[name, number].depths for number in repetitions], axis=0)
            for name in self.searches
        }
        drawn = {
            f"{name}: depth {found[name, 0].topology[0]:g}": found[name, 0].genotype["normal"]
            for name in self.searches
        }
        return Findings(
            self._tables(found, accuracies, f"{space.name} on {data.name}", task_of(data).score),
            {
                "depth": figures.overlay({"Normal cell, mean of the searches": curves}, "depth", "epoch"),
                "cells": draw_topologies(drawn),
            },
        )

    def _search(self, name: str, number: int, parts: tuple[Any, ...], path: Path) -> FoundCell:
        space, supernet, data, trainer = parts
        seed = self.seed + number
        if path.is_file():
            facts = parse_json(read_text(path), where=path)
            settings = {"arch_lr": self.arch_lr, "images": data.train.images, "batch": data.batch_size}
            for key, value in settings.items():
                if facts.get(key) != value:
                    raise InputError(f"expected {key}={facts.get(key)}, as before", got=value, where=path)
            return FoundCell(read_genotypes(path)[0], facts["depths"])
        recorder = DepthRecorder()
        pl.seed_everything(seed, verbose=False)
        strategy = SEARCHES[name](space, supernet(), arch_lr=self.arch_lr, seed=seed)
        fit_quietly(trainer, strategy, data, [recorder])
        (genotype,) = strategy.derive()
        facts = {"search": name, "seed": seed, "depths": recorder.depths, "arch_lr": self.arch_lr}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_genotypes(path, [genotype], **facts, images=data.train.images, batch=data.batch_size)
        return FoundCell(genotype, recorder.depths)

    def _tables(
        self,
        found: Mapping[tuple[str, int], FoundCell],
        accuracies: Mapping[tuple[str, int], Sequence[float]],
        what: str,
        score: str,
    ) -> list[Table]:
        columns = ["depth", "width", "skips", *(f"{score} after {epochs}" for epochs in self.epochs)]
        rows: list[list[Entry]] = [
            [name, self.seed + number, *cell.topology, *accuracies[name, number]]
            for (name, number), cell in found.items()
        ]
        values: dict[str, list[list[float]]] = {}
        for (name, number), cell in found.items():
            values.setdefault(name, []).append([*cell.topology, *accuracies[name, number]])
        means: list[list[Entry]] = [
            [name, *(mean_estimate(column) for column in zip(*each, strict=True))]
            for name, each in values.items()
        ]
        title = f"{self.repetitions} searches each: {what}"
        return [
            Table("ablation", title, ["search", *columns], means, f"Means ± standard errors. {_CELLS_NOTE}"),
            Table("cells", f"The cells of {title}", ["search", "seed", *columns], rows, _CELLS_NOTE),
        ]


# PR-DARTS' theorems 1, 2, and 4 on the cell of the theorems (Zhou et al. 2020, arXiv:2006.16537).

_THEOREMS_NOTE = (
    "Shares of the draws, ± the standard error. λ_B is the lower bound of theorem 4. Speed is the slope of "
    "−log F over the steps, fitted by a line; the theorems bound it from below, for wide enough cells and "
    "small enough steps"
)
RAISED = {"skip": "a skip into the second node", "conv": "a convolution into the last node"}


@checked
class GateTheorems(Study):
    """Check with random gates whether a larger λ, a larger gate, and a shallow cell train faster.

    Args:
        draws: number of draws of gates and weights.
        nodes: h of a cell; an even number, because the shallow cell has two halves.
        channels: m of a node.
        positions: p of an image.
        images: n, number of images of norm 1, with labels from N(0, 1).
        steps: steps of gradient descent.
        eta: η, the step size.
        raise_by: ε that a gate is raised by.
        seed: seed of all draws.

    >>> findings = GateTheorems(draws=3, channels=4, positions=4, images=3, steps=5).run()
    >>> [table.name for table in findings.tables]
    ['theorems']
    """

    def __init__(
        self,
        *,
        draws: Annotated[int, at_least(3)] = 40,
        nodes: Annotated[int, at_least(4)] = 4,
        channels: PositiveInt = 64,
        positions: PositiveInt = 8,
        images: Annotated[int, at_least(2)] = 8,
        steps: PositiveInt = 100,
        eta: PositiveFloat = 0.01,
        raise_by: PositiveFloat = 0.2,
        seed: Seed = 0,
    ) -> None:
        if nodes % 2:
            raise InputError("expected an even number of nodes", got=nodes, where="study.nodes")
        self.draws, self.nodes, self.steps, self.eta = draws, nodes, steps, eta
        self.raise_by, self.seed = raise_by, seed
        self.sizes = {"channels": channels, "positions": positions, "inputs": 2}
        random = generator(seed)
        x = torch.randn(images, 2, positions, dtype=torch.float64, generator=random)
        self.x = x / x.flatten(1).norm(dim=1)[:, None, None]
        self.y = torch.randn(images, dtype=torch.float64, generator=random)

    def run(self) -> Findings:
        """Train every drawn cell, its shallow form, and itself with a gate raised."""
        rows = [self._draw(number) for number in follow(range(self.draws), "draws")]
        rates, speeds, shallow_rates, shallow_speeds, *smaller = map(np.array, zip(*rows, strict=True))
        found: list[list[Entry]] = [
            ["1", "ρ of λ and speed", estimate(spearman, rates, speeds, seed=self.seed)]
        ]
        for place, what in zip(smaller, RAISED.values(), strict=True):
            found.append(["2", f"{what} raised: a smaller loss", mean_estimate(place)])
        found.append(["4", "λ_B / λ_A, the median", float(np.median(shallow_rates / rates))])
        found.append(["4", "the shallow cell is faster", mean_estimate(shallow_speeds > speeds)])
        what = f"{self.draws} cells of {self.nodes} nodes, {self.steps} steps of η = {self.eta:g}"
        table = Table(
            "theorems", f"PR-DARTS' theorems: {what}", ["theorem", "what", "found"], found, _THEOREMS_NOTE
        )
        figure = figures.against({"theorem 1": (rates, speeds)}, "λ", "speed of convergence")
        return Findings([table], {"rates": figure})

    def _draw(self, number: int) -> list[float]:
        """Return λ and speed of a cell and of its shallow form, and whether raised gates lower the loss."""
        gates = draw_gates(self.nodes, generator(self.seed, number))
        deep_losses = self._train(gates, number)
        numbers = [rate(gates), _speed(deep_losses), shallow_rate(gates)]
        numbers.append(_speed(self._train(gates.shallow(), number, branches=2)))
        last = self.nodes - 1
        for kind, place in {"skip": (0, 1), "conv": (last - 1, last)}.items():
            raised = getattr(gates, kind).clone()
            raised[place] += self.raise_by
            numbers.append(self._train(gates._replace(**{kind: raised}), number)[-1] < deep_losses[-1])
        return numbers

    def _train(self, gates: Gates, number: int, branches: int = 1) -> list[float]:
        cell = GatedCell(gates, **self.sizes, seed=seed_of(self.seed, number), branches=branches)
        return losses(cell, self.x, self.y, steps=self.steps, eta=self.eta)


def _speed(found: Sequence[float]) -> float:
    return -float(np.polyfit(np.arange(len(found)), np.log(found), 1)[0])
