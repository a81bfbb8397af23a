"""Predicted latencies, measured times, and tables of devices."""

import time

import numpy as np
import pytest
import torch

from nas_lightning.errors import InputError
from nas_lightning.objectives.latency import (
    LEAST_CALLS,
    Belief,
    Device,
    Features,
    KnownDevices,
    LatencyModel,
    LatencyTable,
    best_rows,
    indices_to_measure,
    left_out,
    medians,
    time_in_turn,
)
from nas_lightning.spaces import DartsSpace, NasBench101, NasBench201, TwoLayer
from nas_lightning.spaces.base import draw_distinct
from nas_lightning.studies.scoring import spearman

# The regression against its textbook form and against brute force.


@pytest.fixture
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(12, 4))


@pytest.fixture
def z(rows) -> np.ndarray:
    return rows @ np.array([1.0, -2.0, 0.0, 0.5]) + 0.1 * np.random.default_rng(1).normal(size=len(rows))


def textbook(rows, z, noise):
    """S = (I + ΦᵀΦ/σ²)⁻¹ and m = S Φᵀz/σ²."""
    covariance = np.linalg.inv(np.eye(rows.shape[1]) + rows.T @ rows / noise**2)
    return covariance @ rows.T @ z / noise**2, covariance


@pytest.mark.parametrize("noise", [0.05, 1.0])
def test_posterior_equals_the_textbook(rows, z, noise):
    belief = Belief.before(4, noise).condition(rows, z)
    mean, covariance = textbook(rows, z, noise)
    np.testing.assert_allclose(belief.mean, mean, atol=1e-10)
    np.testing.assert_allclose(belief.covariance, covariance, atol=1e-10)


def test_sequential_conditioning(rows, z):
    together, belief = Belief.before(4, 0.3).condition(rows, z), Belief.before(4, 0.3)
    for row, value in zip(rows, z, strict=True):
        belief = belief.condition(row[None], np.array([value]))
    np.testing.assert_allclose(belief.mean, together.mean, atol=1e-10)
    np.testing.assert_allclose(belief.covariance, together.covariance, atol=1e-10)


def test_predictions_are_calibrated():
    """Weights are drawn from the prior, so 68.3 % of all predictions are within a standard deviation."""
    random, inside = np.random.default_rng(0), []
    for _ in range(400):
        rows, w = random.normal(size=(15, 5)), random.normal(size=5)
        z = rows @ w + 0.4 * random.normal(size=15)
        mean, deviation = Belief.before(5, 0.4).condition(rows[:5], z[:5]).predict(rows[5:])
        inside.append(np.abs(z[5:] - mean) < deviation)
    assert np.mean(inside) == pytest.approx(0.683, abs=0.03)


def test_leave_one_out_errors(rows, z):
    mean, covariance = textbook(rows[1:], z[1:], 0.3)
    deviation = (rows[0] @ covariance @ rows[0] + 0.09) ** 0.5
    assert left_out(Belief.before(4, 0.3), rows, z)[0] == pytest.approx((z[0] - rows[0] @ mean) / deviation)


def variance_left(rows, chosen, noise) -> float:
    _, covariance = textbook(rows[list(chosen)], np.zeros(len(chosen)), noise)
    return float(np.einsum("nf,fg,ng->", rows, covariance, rows))


def test_each_choice_leaves_the_least_variance(rows):
    chosen = best_rows(rows, 4, 0.3)
    assert len({*chosen}) == 4
    for number in range(4):
        others = {
            row: variance_left(rows, [*chosen[:number], row], 0.3)
            for row in range(len(rows))
            if row not in chosen[:number]
        }
        assert min(others, key=others.get) == chosen[number]


# Timing


def work(milliseconds):
    """Computes for as long."""
    end = time.process_time() + milliseconds / 1000
    while time.process_time() < end:
        pass


def test_processor_time_does_not_count_what_others_do():
    times = time_in_turn(
        [lambda: work(3), lambda: time.sleep(0.003)], rounds=3, least_ms=1, clock="processor"
    )
    ms, _ = medians(times)
    assert ms[0] == pytest.approx(3, rel=0.3)
    assert ms[1] < 0.5


def test_short_calls_are_repeated():
    counts = [0, 0]

    def call(index, seconds):
        counts[index] += 1
        time.sleep(seconds)

    time_in_turn([lambda: call(0, 0.001), lambda: call(1, 0.03)], rounds=2, warmup=1, least_ms=20)
    assert counts[0] > 10
    assert counts[1] == 1 + 3 + 3  # to warm up, and the least number of calls in each round


def test_interrupted_calls_do_not_count():
    """A mean over the calls of a round would be five times as long."""
    calls = []

    def call():
        calls.append(len(calls))
        time.sleep(0.05 if len(calls) % 4 == 0 else 0.001)

    ms, _ = medians(time_in_turn([call], rounds=2, least_ms=150))
    assert ms[0] < 5


def test_each_round_has_all_calls_in_an_order_of_its_own():
    order = []
    time_in_turn([lambda i=i: order.append(i) for i in range(5)], rounds=3, warmup=1, least_ms=1e-9)
    rounds = [tuple(order[5 + 15 * n : 20 + 15 * n : LEAST_CALLS]) for n in range(3)]
    assert all(sorted(one) == list(range(5)) for one in rounds)
    assert len(set(rounds)) == 3


def test_the_median_has_the_error_of_its_formula():
    """√(π/2) σ/√n for the median of n normal values (its asymptotic deviation)."""
    times = np.random.default_rng(0).normal(5.0, 1.0, size=(40, 101))
    ms, error = medians(times)
    assert ms.std() == pytest.approx(np.sqrt(np.pi / 2 / 101), rel=0.35)
    assert error.mean() == pytest.approx(np.sqrt(np.pi / 2 / 101), rel=0.2)


# Latencies predicted from a few measurements, of synthetic devices.


def cells(space, count, seed=0):
    return draw_distinct(space, count, torch.Generator().manual_seed(seed))


def milliseconds(genotype, price, fixed=1.0):
    return fixed + sum(price.get(edge.op, 0.1) for _, cell in genotype for edge in cell.edges)


CONVOLUTIONS = {"nor_conv_3x3": 1.0, "nor_conv_1x1": 0.3, "sep_conv_5x5": 1.5, "sep_conv_3x3": 1.0}
POOLS = {"avg_pool_3x3": 2.0, "skip_connect": 0.5}


@pytest.mark.parametrize("space", [NasBench201(), DartsSpace(), NasBench101()], ids=lambda space: space.name)
def test_device_is_predicted_from_some_cells(space):
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


def test_known_devices_improve_predictions(devices):
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


def test_predictions_scale_with_the_device(devices):
    space, found, table = devices
    measured = {genotype: table["d0"][space.notation(genotype)] for genotype in found[:10]}
    once = LatencyModel(Features(space), measured).predict(found[10:])
    slow = LatencyModel(Features(space), {g: 7 * ms for g, ms in measured.items()}).predict(found[10:])
    for fast, other in zip(once, slow, strict=True):
        assert other == pytest.approx((7 * fast.ms, 7 * fast.error))


def test_impossible_predictions_raise(devices):
    space, found, table = devices
    with pytest.raises(InputError, match="At least 3 latencies must be measured, got 2"):
        LatencyModel(Features(space), dict.fromkeys(found[:2], 1.0))
    known = KnownDevices({"d0": table["d0"]})
    other = next(g for g in cells(space, 400, seed=1) if space.notation(g) not in table["d0"])
    with pytest.raises(InputError, match="The architecture must be in the table of known devices, got '"):
        Features(space, known).rows([other])
    with pytest.raises(InputError, match="The number of networks must be from 3 to 200, got 201"):
        indices_to_measure(Features(space), Features(space).rows(found), 201)


# Tables of latencies


CELL = "|skip_connect~0|+|none~0|none~1|+|nor_conv_3x3~0|nor_conv_3x3~1|none~2|"
OTHER = CELL.replace("nor_conv_3x3", "nor_conv_1x1")


def table(tmp_path, text: str) -> LatencyTable:
    path = tmp_path / "latency.csv"
    path.write_text(text)
    return LatencyTable(path, NasBench201())


def test_a_table_is_read(tmp_path):
    read = table(tmp_path, f"arch,phone,board\n{CELL},2.5,10\n{OTHER},1.5,8e0\n")
    assert read.names == [CELL, OTHER]
    assert read.choose(["board"]) == {"board": {CELL: 10.0, OTHER: 8.0}}


REFUSED = [
    (f"cell,phone\n{CELL},1\n", "There must be a column `arch` or `genotype`, got 'cell, phone'"),
    (f"arch,phone\n{CELL},1e308\n", "at most 1,000,000,000, got '1e308' .*row 1"),
    (
        f"arch,phone\n{CELL},0\n",
        "`phone` must be in milliseconds, greater than 0 and at most 1,000,000,000, got '0' .*row 1",
    ),
    (f"arch,phone\n{CELL},1\n{OTHER},nan\n", "got 'nan' .*row 2"),
    (f"arch,phone\n{CELL},inf\n", "got 'inf'"),
    (f"arch,phone\n{CELL},1\n{CELL},1\n", "Architectures must be distinct, got 'that of row 1' .*row 2"),
    ("arch,phone\n", "There must be at least one architecture"),
    ("arch,phone\n|what~0|,1\n", "row 1"),
    (f"arch,phone\n{CELL}\n", "The row must have 2 values, got 1 .*row 1"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_mistakes_name_the_row(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        table(tmp_path, text)


def test_unknown_device_suggests_the_nearest(tmp_path):
    with pytest.raises(InputError, match="did you mean 'phone'"):
        table(tmp_path, f"arch,phone\n{CELL},1\n").choose(["fone"])


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="The table of latencies must"):
        LatencyTable(tmp_path / "none.csv", NasBench201())


# Devices


SPACE = NasBench201()
CELLS = draw_distinct(SPACE, 60, torch.Generator().manual_seed(0))


def truth(cell):
    """Each 3×3 convolution takes a millisecond."""
    return 2.0 + cell.ops.count("nor_conv_3x3")


def table_device(path, cells, columns=("phone",), settings=()):
    rows = [
        ",".join([SPACE.notation(cell), *(str(truth(cell) + i) for i, _ in enumerate(columns))])
        for cell in cells
    ]
    path.write_text("\n".join([*settings, ",".join(["genotype", *columns]), *rows]) + "\n")
    return str(path)


def test_measured_latency(tmp_path):
    device = Device(table_device(tmp_path / "phone.csv", CELLS[:40]), SPACE)
    assert [device(cell) for cell in CELLS[:40]] == [truth(cell) for cell in CELLS[:40]]


def test_predicted_latency_includes_its_error(tmp_path):
    device = Device(table_device(tmp_path / "phone.csv", CELLS[:40]), SPACE)
    found, true = [device(cell) for cell in CELLS[40:]], [truth(cell) for cell in CELLS[40:]]
    assert sum(a > b for a, b in zip(found, true, strict=True)) > 0.75 * len(true)
    assert all(a < 1.6 * b for a, b in zip(found, true, strict=True))


def test_a_column_of_a_table_is_a_device(tmp_path):
    path = table_device(tmp_path / "all.csv", CELLS[:5], ("phone", "board"))
    assert Device(f"{path}:board", SPACE)(CELLS[0]) == truth(CELLS[0]) + 1
    with pytest.raises(InputError, match=r"Choose one of its devices, .*all.csv:phone, board"):
        Device(path, SPACE)
    with pytest.raises(InputError, match=r"Unknown device"):
        Device(f"{path}:bord", SPACE)
    with pytest.raises(InputError, match=r"Unknown device"):
        Device(f"{path}:", SPACE)


def test_a_folder_s_colon_names_no_column(tmp_path):
    (tmp_path / "at 12:30").mkdir()
    path = table_device(tmp_path / "at 12:30" / "all.csv", CELLS[:5], ("phone", "board:2"))
    assert Device(f"{path}:board:2", SPACE)(CELLS[0]) == truth(CELLS[0]) + 1


def test_a_file_measured_with_other_networks_is_refused(tmp_path):
    settings = ["# space: nasbench201", "# network.channels: 16"]
    path = table_device(tmp_path / "phone.csv", CELLS[:5], settings=settings)
    Device(path, SPACE, {"network.channels": "16", "network.cells": "5"})
    with pytest.raises(InputError, match=r"channels` must be 16, with which .* was measured, got '4'"):
        Device(path, SPACE, {"network.channels": "4"})


def test_settings_of_a_file(tmp_path):
    path = table_device(tmp_path / "phone.csv", CELLS[:5], settings=["# network.channels: 16"])
    text = (tmp_path / "phone.csv").read_text()
    (tmp_path / "phone.csv").write_text(text, encoding="utf-8-sig")  # as spreadsheets do
    with pytest.raises(InputError, match=r"channels` must be 16, with which .* was measured, got '4'"):
        Device(path, SPACE, {"network.channels": "4"})
    (tmp_path / "phone.csv").write_text(f"# network.channels: 4\n{text}")
    with pytest.raises(InputError, match=r"There can be one network\.channels, got '4, 16'"):
        Device(path, SPACE, {"network.channels": "4"})


def test_a_space_of_a_few_networks_has_devices(tmp_path):
    space = TwoLayer(("relu", "tanh", "swish", "sigmoid"))
    few = draw_distinct(space, 3, torch.Generator().manual_seed(0))
    path = tmp_path / "phone.csv"
    rows = [f'"{space.notation(one)}",{ms}\n' for ms, one in enumerate(few, 1)]
    path.write_text("genotype,phone\n" + "".join(rows))
    assert [Device(str(path), space)(one) for one in few] == [1.0, 2.0, 3.0]


def test_wrong_devices_raise(tmp_path):
    path = tmp_path / "phone.csv"
    table_device(path, CELLS[:2])
    with pytest.raises(InputError, match="There must be at least 3 measured networks, got 2"):
        Device(str(path), SPACE)
    whole = (table_device(path, CELLS[:9]), path.read_text())[1]
    path.write_text(whole[: len(whole) // 2])  # cut short within a row
    with pytest.raises(InputError, match=r"The row must have 2 values, got 1|.*\(in .*phone.csv, row \d+\)"):
        Device(str(path), SPACE)
    path.write_text("genotype\n" + SPACE.notation(CELLS[0]) + "\n")
    with pytest.raises(InputError, match="There must be a column of milliseconds"):
        Device(str(path), SPACE)
    path.write_text("")
    with pytest.raises(InputError, match="There must be a column `arch` or `genotype`"):
        Device(str(path), SPACE)


def test_missing_cell_is_predicted(tmp_path):
    path = tmp_path / "phone.csv"
    table_device(path, CELLS[:40])
    lines = path.read_text().splitlines()
    lines[1], lines[2] = (
        line.partition(",")[0] + gap for line, gap in zip(lines[1:3], (",-1", ","), strict=True)
    )
    path.write_text("\n".join(lines))
    device = Device(str(path), SPACE)
    assert [device(cell) != truth(cell) for cell in CELLS[:4]] == [True, True, False, False]
    with pytest.raises(
        InputError,
        match="`phone` must be in milliseconds, greater than 0 and at most 1,000,000,000, got '-1'",
    ):
        LatencyTable(path, SPACE)
