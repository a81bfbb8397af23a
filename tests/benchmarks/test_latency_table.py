"""Tables of latencies: what is read, and what is refused with its row."""

import pytest

from nas_lightning.errors import InputError
from nas_lightning.objectives.tables import LatencyTable
from nas_lightning.spaces import NasBench201

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
    (f"cell,phone\n{CELL},1\n", "expected a column arch or genotype, got 'cell, phone'"),
    (f"arch,phone\n{CELL},1e308\n", "of at most 1,000,000,000, got '1e308' .*row 1"),
    (
        f"arch,phone\n{CELL},0\n",
        "expected phone as milliseconds above 0 and of at most 1,000,000,000, got '0' .*row 1",
    ),
    (f"arch,phone\n{CELL},1\n{OTHER},nan\n", "got 'nan' .*row 2"),
    (f"arch,phone\n{CELL},inf\n", "got 'inf'"),
    (f"arch,phone\n{CELL},1\n{CELL},1\n", "expected distinct architectures, got 'that of row 1' .*row 2"),
    ("arch,phone\n", "expected distinct architectures, at least one"),
    ("arch,phone\n|what~0|,1\n", "row 1"),
    (f"arch,phone\n{CELL}\n", "expected 2 values, got 1 .*row 1"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_mistakes_are_one_line_with_the_row(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        table(tmp_path, text)


def test_an_unknown_device_is_refused_with_the_nearest(tmp_path):
    with pytest.raises(InputError, match="did you mean 'phone'"):
        table(tmp_path, f"arch,phone\n{CELL},1\n").choose(["fone"])


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="expected a table of latencies"):
        LatencyTable(tmp_path / "none.csv", NasBench201())
