"""Latencies foretold from a few: of made-up devices whose truth is known."""

import numpy as np
import pytest
import torch

from nas_lightning.errors import InputError
from nas_lightning.objectives.latency import Features, KnownDevices, LatencyModel, indices_to_measure
from nas_lightning.spaces import DartsSpace, NasBench101, NasBench201
from nas_lightning.spaces.base import draw_distinct
from nas_lightning.studies.scoring import spearman


def cells(space, count, seed=0):
    return draw_distinct(space, count, torch.Generator().manual_seed(seed))


def milliseconds(genotype, price, fixed=1.0):
    return fixed + sum(price.get(edge.op, 0.1) for _, cell in genotype for edge in cell.edges)


CONVOLUTIONS = {"nor_conv_3x3": 1.0, "nor_conv_1x1": 0.3, "sep_conv_5x5": 1.5, "sep_conv_3x3": 1.0}
POOLS = {"avg_pool_3x3": 2.0, "skip_connect": 0.5}


@pytest.mark.parametrize("space", [NasBench201(), DartsSpace(), NasBench101()], ids=lambda space: space.name)
def test_a_device_is_foretold_from_some_of_its_cells(space):
    found = cells(space, 90)
    price = {op: 0.3 + i for i, op in enumerate(sorted({e.op for g in found for _, c in g for e in c.edges}))}
    truth = {genotype: milliseconds(genotype, price) for genotype in found}
    model = LatencyModel(Features(space), {genotype: truth[genotype] for genotype in found[:40]})
    predicted = model.predict(found[40:])
    assert spearman(np.array([p.ms for p in predicted]), np.array([truth[g] for g in found[40:]])) > 0.95
    inside = [abs(p.ms - truth[g]) < 2 * p.error for p, g in zip(predicted, found[40:], strict=True)]
    assert np.mean(inside) > 0.85


@pytest.fixture(scope="module")
def devices():
    """Three that like convolutions and three that do not, each of its own speed; of 200 cells."""
    space, random = NasBench201(), np.random.default_rng(0)
    found = cells(space, 200)
    table = {}
    for number in range(6):
        price = CONVOLUTIONS if number < 3 else POOLS
        own = {op: value * random.uniform(0.8, 1.2) for op, value in price.items()}
        speed = random.uniform(1, 20)
        table[f"d{number}"] = {space.notation(g): speed * milliseconds(g, own) for g in found}
    return space, found, table


def test_devices_that_are_known_help_with_another(devices):
    space, found, table = devices
    known = KnownDevices({name: table[name] for name in ("d0", "d1", "d3", "d4")})
    for name in ("d2", "d5"):
        truth = [table[name][space.notation(genotype)] for genotype in found]
        rho = {}
        for features in (Features(space), Features(space, known)):
            rows = features.rows(found)
            chosen = indices_to_measure(features, rows, 4)
            model = LatencyModel(features, {found[i]: truth[i] for i in chosen})
            rho[features.known] = spearman(np.array([p.ms for p in model.predict(found)]), np.array(truth))
        assert rho[known] > 0.97
        assert rho[known] > rho[None]


def test_a_slower_device_is_the_same_device(devices):
    space, found, table = devices
    measured = {genotype: table["d0"][space.notation(genotype)] for genotype in found[:10]}
    once = LatencyModel(Features(space), measured).predict(found[10:])
    slow = LatencyModel(Features(space), {g: 7 * ms for g, ms in measured.items()}).predict(found[10:])
    for fast, other in zip(once, slow, strict=True):
        assert other == pytest.approx((7 * fast.ms, 7 * fast.error))


def test_what_cannot_be_foretold_is_refused(devices):
    space, found, table = devices
    with pytest.raises(InputError, match="expected at least 3 measured latencies, got 2"):
        LatencyModel(Features(space), dict.fromkeys(found[:2], 1.0))
    known = KnownDevices({"d0": table["d0"]})
    other = next(g for g in cells(space, 400, seed=1) if space.notation(g) not in table["d0"])
    with pytest.raises(InputError, match="expected an architecture that the known devices' table has"):
        Features(space, known).rows([other])
    with pytest.raises(InputError, match="expected 3 to 200 networks, got 201"):
        indices_to_measure(Features(space), Features(space).rows(found), 201)
