"""Devices: what was measured, what it says of other networks, and files that are none."""

import pytest
import torch

from nas_lightning.errors import InputError
from nas_lightning.objectives.tables import Device, LatencyTable
from nas_lightning.spaces import NasBench201, TwoLayer
from nas_lightning.spaces.base import draw_distinct

SPACE = NasBench201()
CELLS = draw_distinct(SPACE, 60, torch.Generator().manual_seed(0))


def truth(cell):
    """Each 3×3 convolution takes a millisecond."""
    return 2.0 + cell.ops.count("nor_conv_3x3")


def table(path, cells, columns=("phone",), settings=()):
    rows = [
        ",".join([SPACE.notation(cell), *(str(truth(cell) + i) for i, _ in enumerate(columns))])
        for cell in cells
    ]
    path.write_text("\n".join([*settings, ",".join(["genotype", *columns]), *rows]) + "\n")
    return str(path)


def test_what_was_measured_is_its_latency(tmp_path):
    device = Device(table(tmp_path / "phone.csv", CELLS[:40]), SPACE)
    assert [device(cell) for cell in CELLS[:40]] == [truth(cell) for cell in CELLS[:40]]


def test_what_was_not_is_foretold_with_an_error_on_top(tmp_path):
    device = Device(table(tmp_path / "phone.csv", CELLS[:40]), SPACE)
    found, true = [device(cell) for cell in CELLS[40:]], [truth(cell) for cell in CELLS[40:]]
    assert sum(a > b for a, b in zip(found, true, strict=True)) > 0.75 * len(true)
    assert all(a < 1.6 * b for a, b in zip(found, true, strict=True))


def test_a_column_of_a_table_is_a_device(tmp_path):
    path = table(tmp_path / "all.csv", CELLS[:5], ("phone", "board"))
    assert Device(f"{path}:board", SPACE)(CELLS[0]) == truth(CELLS[0]) + 1
    with pytest.raises(InputError, match=r"expected one of its devices, .*all.csv:phone, board"):
        Device(path, SPACE)
    with pytest.raises(InputError, match=r"expected a device of the table .*board.*, got 'bord'"):
        Device(f"{path}:bord", SPACE)
    with pytest.raises(InputError, match=r"expected a device of the table .*, got ''"):
        Device(f"{path}:", SPACE)


def test_a_folder_s_colon_names_no_column(tmp_path):
    (tmp_path / "at 12:30").mkdir()
    path = table(tmp_path / "at 12:30" / "all.csv", CELLS[:5], ("phone", "board:2"))
    assert Device(f"{path}:board:2", SPACE)(CELLS[0]) == truth(CELLS[0]) + 1


def test_a_file_measured_with_other_networks_is_refused(tmp_path):
    settings = ["# space: nasbench201", "# network.channels: 16"]
    path = table(tmp_path / "phone.csv", CELLS[:5], settings=settings)
    Device(path, SPACE, {"network.channels": "16", "network.cells": "5"})
    with pytest.raises(InputError, match=r"channels=16, with which .* was measured, got '4'"):
        Device(path, SPACE, {"network.channels": "4"})


def test_settings_are_read_behind_a_mark_and_do_not_contradict_each_other(tmp_path):
    path = table(tmp_path / "phone.csv", CELLS[:5], settings=["# network.channels: 16"])
    text = (tmp_path / "phone.csv").read_text()
    (tmp_path / "phone.csv").write_text(text, encoding="utf-8-sig")  # as spreadsheets do
    with pytest.raises(InputError, match=r"channels=16, with which .* was measured, got '4'"):
        Device(path, SPACE, {"network.channels": "4"})
    (tmp_path / "phone.csv").write_text(f"# network.channels: 4\n{text}")
    with pytest.raises(InputError, match=r"expected one network.channels, got '4, 16'"):
        Device(path, SPACE, {"network.channels": "4"})


def test_a_space_of_a_few_networks_has_devices(tmp_path):
    space = TwoLayer(("relu", "tanh", "swish", "sigmoid"))
    few = draw_distinct(space, 3, torch.Generator().manual_seed(0))
    path = tmp_path / "phone.csv"
    rows = [f'"{space.notation(one)}",{ms}\n' for ms, one in enumerate(few, 1)]
    path.write_text("genotype,phone\n" + "".join(rows))
    assert [Device(str(path), space)(one) for one in few] == [1.0, 2.0, 3.0]


def test_files_that_are_no_device_are_one_line(tmp_path):
    path = tmp_path / "phone.csv"
    table(path, CELLS[:2])
    with pytest.raises(InputError, match="expected 3 measured networks or more, got 2"):
        Device(str(path), SPACE)
    whole = (table(path, CELLS[:9]), path.read_text())[1]
    path.write_text(whole[: len(whole) // 2])  # cut short within a row
    with pytest.raises(InputError, match=r"expected 2 values, got 1|expected .*\(in .*phone.csv, row \d+\)"):
        Device(str(path), SPACE)
    path.write_text("genotype\n" + SPACE.notation(CELLS[0]) + "\n")
    with pytest.raises(InputError, match="expected a column of milliseconds"):
        Device(str(path), SPACE)
    path.write_text("")
    with pytest.raises(InputError, match="expected a column arch or genotype"):
        Device(str(path), SPACE)


def test_a_cell_that_a_device_lacks_is_foretold(tmp_path):
    path = tmp_path / "phone.csv"
    table(path, CELLS[:40])
    lines = path.read_text().splitlines()
    lines[1], lines[2] = (
        line.partition(",")[0] + gap for line, gap in zip(lines[1:3], (",-1", ","), strict=True)
    )
    path.write_text("\n".join(lines))
    device = Device(str(path), SPACE)
    assert [device(cell) != truth(cell) for cell in CELLS[:4]] == [True, True, False, False]
    with pytest.raises(
        InputError, match="expected phone as milliseconds above 0 and of at most 1,000,000,000, got '-1'"
    ):
        LatencyTable(path, SPACE)
