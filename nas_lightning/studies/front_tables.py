"""Tables beside the fronts: each device by itself, and what multiply-adds say of latencies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import nn

from nas_lightning.cost.counts import cost
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.fronts.dominance import Array
from nas_lightning.progress import follow
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.limited.linear import COUNTED, HELD_OUT, fit_costs
from nas_lightning.studies.front_rules import Bench
from nas_lightning.studies.statistics import spearman
from nas_lightning.tables import Entry, Estimate, Table

Place = tuple[str, str]
"""A data set and a device."""
Judged = Mapping[str, tuple[float, int]]
"""rule → the share of the true front's hypervolume, and how many cells were chosen"""


def by_device(judged: Mapping[Place, Sequence[Judged]]) -> Table:
    """A row for each data set and device, ± the deviation over draws.

    >>> table = by_device({("cifar10", "phone"): [{"all": (1.0, 3)}, {"all": (0.5, 3)}]})
    >>> table.columns, table.rows[0][2].value
    (['data set', 'device', 'all'], 0.75)
    """
    rules = list(next(iter(judged.values()))[0])
    rows: list[list[Entry]] = []
    for (dataset, device), draws in judged.items():
        shares = np.array([[draw[rule][0] for rule in rules] for draw in draws])
        rows.append([dataset, device, *(Estimate(float(x.mean()), float(x.std())) for x in shares.T)])
    title = "Shares of the true front's hypervolume, by device"
    return Table("devices", title, ["data set", "device", *rules], rows)


def count_by_table(
    space: SearchSpace,
    network: Callable[..., nn.Module],
    image: tuple[int, int, int],
    cells: Sequence[Genotype],
) -> Array:
    """The multiply-adds of many cells, from those of a few: exact, or refused, in a space of cells.

    Args:
        space: of the cells.
        network: genotype → its network.
        image: (c, h, w).
        cells: all.
    """
    order = torch.randperm(len(cells), generator=torch.Generator().manual_seed(0)).tolist()
    counted = [cells[row] for row in order[: COUNTED + HELD_OUT]]
    macs_of = [float(cost(network(cell), image).macs) for cell in follow(counted, "networks")]
    table = fit_costs(space, counted, [{"macs": macs} for macs in macs_of])
    if not table.exact:
        raise InputError("expected multiply-adds that add up over operations", got=space.name, where="space")
    macs = table.costs["macs"]
    hot = ({name: matrix.double() for name, matrix in space.one_hot(cell).items()} for cell in cells)
    return np.array([float(macs.of(weights)) for weights in hot])


def macs_table(macs: Array, benches: Mapping[Place, Bench]) -> Table:
    """Spearman's ρ of multiply-adds and latencies: a row a device, a column a data set.

    >>> bench = Bench(np.array([2.0, 1.0, np.nan]), np.ones(3), 20.0)
    >>> macs_table(np.array([1.0, 2.0, 3.0]), {("cifar10", "phone"): bench}).rows
    [['phone', 2, -1.0]]
    """
    datasets, devices = (list(dict.fromkeys(place[i] for place in benches)) for i in (0, 1))
    rows: list[list[Entry]] = []
    for device in devices:
        measured = [np.flatnonzero(~np.isnan(benches[d, device].ms)) for d in datasets]
        rho = [
            spearman(benches[d, device].ms[rows], macs[rows])
            for d, rows in zip(datasets, measured, strict=True)
        ]
        rows.append([device, len(measured[0]), *rho])
    title = "Multiply-adds are no latency: Spearman's ρ of the two"
    return Table("macs", title, ["device", "cells measured", *datasets], rows)
