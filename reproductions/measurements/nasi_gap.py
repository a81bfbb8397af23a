"""NASI's result on NAS-Bench-201 by samples, ν and μ, width, batch, initialization, and batch norm.

    python -m reproductions.measurements.nasi_gap --data ../shared/data [--steps 96] [--short 48]

One thing differs from the main search at a time: 8 channels, five cells a stage, 8 CIFAR-10 images a step,
LeCun's initialization, one sampled path, norms without parameters, also after pooling. Each search's samples
are drawn once and saved in --results, where a second call continues; ν, μ, and T are applied afterwards. The
main searches have T = --steps, the others --short. ν and μ are chosen on the first half of the seeds and
judged on the second. A search sees training images only; its cell is looked up in the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nas_lightning.data import Cifar10, SearchData
from nas_lightning.metrics.recording import initialize
from nas_lightning.objectives.tables import TabularNasBench201
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import Nasi
from nas_lightning.studies.scoring import mean_estimate
from nas_lightning.utils.progress import follow
from nas_lightning.utils.tables import Entry, Table
from reproductions.nasi import Found, Rule, TraceSamples, draw_samples, step_of

SIZES = {"in_channels": 3, "num_classes": 10, "channels": 8, "cells": 5}
RULE = Rule(0.5, 1.0)
NUS, MUS = (0.1, 0.25, 0.5, 0.75, 0.9), (1.0, 2.0, 4.0, 8.0)
KINDS = {"ν at the median": "quantile", "ν by 6.14": "mean", "ν by 6.15": "adaptive"}
REPORTED = "reported for T: 93.08 / 69.51 / 40.87, for 4 T: 93.55 / 71.20 / 44.84, four trials"
Change = Callable[[nn.Module], None]


@dataclass(frozen=True)
class Case:
    """Differences from the main search.

    Args:
        sizes: sizes of the supernet.
        batch: images of a step.
        scheme: initialization.
        change: changes the supernet's modules before weights are drawn.
        options: options of the strategy.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    batch: int = 8
    scheme: Any = "lecun"
    change: Change | None = None
    options: dict[str, Any] = field(default_factory=dict)


def norm_as_trained(net: nn.Module) -> None:
    """Change norms to those of the table's networks: with parameters, and none after pooling."""
    for module in list(net.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Sequential) and isinstance(child[-1], nn.BatchNorm2d):
                if isinstance(child[0], nn.AvgPool2d):
                    setattr(module, name, child[0])
            elif isinstance(child, nn.BatchNorm2d):
                setattr(module, name, nn.BatchNorm2d(child.num_features, track_running_stats=False))


MAIN = "main"
CASES = {
    MAIN: Case(),
    "norms as in the table's networks": Case(change=norm_as_trained),
    "PyTorch's initialization": Case(scheme="default"),
    "batches of 32": Case(batch=32),
    "16 channels": Case(sizes={"channels": 16}),
    "kaiming": Case(scheme="kaiming"),
    "all operations computed": Case(options={"computed": "all"}),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=8, help="seeds of the main search; the others have half")
    parser.add_argument("--steps", type=int, default=96, help="T of the main searches")
    parser.add_argument("--short", type=int, default=48, help="T of the others")
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--results", type=Path, default=Path("outputs/nasi_gap"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.results.mkdir(parents=True, exist_ok=True)
    half = options.seeds // 2
    others = [name for name in options.cases if name != MAIN]
    asked = [(MAIN, seed) for seed in range(options.seeds)]
    asked += [(name, seed) for name in others for seed in range(half)]
    samples: dict[str, list[TraceSamples]] = {}
    for name, seed in follow(asked, "searches"):
        samples.setdefault(name, []).append(draw(name, seed, options))
    table = TabularNasBench201(options.data / "nasbench201" / "test_accuracy.csv")
    found = Found(NasBench201(), table, samples, dict.fromkeys(table.datasets, 0.0))
    tables = budgets(found, options), choices(found, half), cases(found, options, half)
    for one in (*tables, initializations(found, options)):
        print(one.markdown(), end="\n\n", flush=True)


@cache
def images(root: Path) -> SearchData:
    """Read the images once; a search shuffles them."""
    data = SearchData(Cifar10(root=str(root), subset=20_000))
    data.setup()
    return data


def draw(name: str, seed: int, options: argparse.Namespace) -> TraceSamples:
    """Return the samples of a search; draw those that are not in the file."""
    case, steps = CASES[name], options.steps if name == MAIN else options.short
    data = images(options.data / "cifar10")
    torch.manual_seed(seed)
    space = NasBench201()
    net = space.supernet(**{**SIZES, **case.sizes})
    if case.change is not None:
        case.change(net)
    strategy = Nasi(space, net, data, nu=1.0, seed=seed, **{"computed": "sampled", **case.options})
    initialize(net, case.scheme, torch.Generator().manual_seed(seed))
    path = options.results / f"{name.replace(' ', '_')}_{seed}.csv"
    return draw_samples(strategy, data, path, steps=steps, batch_size=case.batch, settings={"case": name})


def budgets(found: Found, options: argparse.Namespace) -> Table:
    """Return accuracies of the main searches over T."""
    rows: list[list[Entry]] = []
    for T in (options.steps // 2**power for power in reversed(range(6))):
        some = [one.first(T) for one in found.samples[MAIN]]
        rows += [[T, name, *found.accuracies(some, RULE, kind)] for name, kind in KINDS.items()]
    title = f"Over the number of samples: {options.seeds} searches, μ = 1"
    return Table("budgets", title, ["T", "ν", *found.random], rows, REPORTED)


def choices(found: Found, half: int) -> Table:
    """Choose ν and μ on the first half of the seeds, and return their accuracies on the second."""
    first, second = found.samples[MAIN][:half], found.samples[MAIN][half:]
    grid = [Rule(nu, mu) for nu, mu in product(NUS, MUS)]
    order = sorted(grid, key=lambda rule: -found.accuracies(first, rule)[0].value)
    rows: list[list[Entry]] = []
    for rule in (*order[:3], RULE, order[-1]):
        both = [found.accuracies(some, rule) for some in (first, second)]
        rows.append([f"{rule.nu:.0%}", rule.mu, both[0][0], *both[1]])
    columns = ["quantile of ν", "μ", "where chosen", *(f"{name}, other seeds" for name in found.random)]
    return Table("choices", f"ν and μ, chosen on {half} searches and judged on others", columns, rows)


def initializations(found: Found, options: argparse.Namespace) -> Table:
    """Compare samples from one draw of weights with as many from several draws."""
    rows: list[list[Entry]] = []
    for draws in (2**power for power in range(options.seeds.bit_length())):
        size, searches = options.steps // draws, list[list[TraceSamples]]()
        for first, place in product(range(0, options.seeds - draws + 1, draws), range(draws)):
            together = found.samples[MAIN][first : first + draws]
            span = slice(place * size, (place + 1) * size)
            searches.append([TraceSamples(one.traces[span], one.slopes[span]) for one in together])
        ends = [
            found.genotype(torch.stack([step_of(part, RULE) for part in parts]).mean(0)) for parts in searches
        ]
        accuracies = [
            mean_estimate([found.benchmark.column(name, end) for end in ends]) for name in found.random
        ]
        rows.append([draws, len(searches), *accuracies])
    title = f"Draws of weights that {options.steps} samples are from: ν at the median, μ = 1"
    return Table("initializations", title, ["draws", "searches", *found.random], rows)


def cases(found: Found, options: argparse.Namespace, half: int) -> Table:
    """Compare each case with the main search with as many samples from the same seeds."""
    rows: list[list[Entry]] = []
    for name, samples in found.samples.items():
        some = [one.first(options.short) for one in samples[:half]]
        means = mean_estimate([float(one.traces.median()) for one in some])
        low = found.accuracies(some, Rule(0.1, 1.0))[0]
        rows.append([name, means, low, *found.accuracies(some, RULE)])
    columns = [
        "search",
        "median t",
        "ν at the lowest tenth",
        *(f"{name}, ν at the median" for name in found.random),
    ]
    return Table("cases", f"One thing changed: T = {options.short}, {half} searches, μ = 1", columns, rows)


if __name__ == "__main__":
    main()
