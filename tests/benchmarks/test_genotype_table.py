"""A table of one's own: any space, any values, checked when it is read."""

import json

import pytest

from nas_lightning.errors import InputError
from nas_lightning.objectives.tables import GenotypeTable, table_accuracy
from nas_lightning.spaces import DartsSpace, NasBench101, NasBench201
from tests.benchmarks.conftest import write

SPACES = [NasBench201(), DartsSpace(), NasBench101()]


@pytest.fixture
def rows(generator):
    """`rows(space)`: architectures and numbers that tell them apart."""
    return lambda space, count=6: [
        [space.notation(space.sample(generator)), str(80 + number), str(number)] for number in range(count)
    ]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_every_value_of_every_architecture(space, rows, tmp_path):
    lines = rows(space)
    table = GenotypeTable(write(tmp_path / "t.csv", lines, ("genotype", "test", "cost")), space)
    assert (table.dataset, table.datasets) == ("test", ("test", "cost"))
    for text, test, cost in lines:
        genotype = space.parse(text)
        assert table.query(genotype).test == {"test": float(test), "cost": float(cost)}
        assert table.describe(genotype) == {"table/test": float(test), "table/rank": 6 - float(cost)}
    assert table.best() == space.parse(lines[-1][0])
    assert table_accuracy(table).name == "oracle_test_accuracy"


def test_matrix_and_operations(tmp_path):
    space = NasBench101()
    matrix = [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    ops = ["input", "conv3x3-bn-relu", "output"]
    path = write(
        tmp_path / "t.csv",
        [[json.dumps(matrix), json.dumps(ops), "93.5"]],
        ("matrix", "ops", "cifar10_valid"),
    )
    table = GenotypeTable(path, space)
    genotype = space.parse({"matrix": matrix, "ops": ops})
    objective = table_accuracy(table)
    assert (objective.name, objective(genotype)) == ("valid_accuracy", 93.5)


def test_rows_of_one_architecture_are_averaged(rows, tmp_path):
    space = NasBench201()
    (line,) = rows(space, 1)
    path = write(tmp_path / "t.csv", [line, [line[0], "90", "7"]], ("arch", "a_valid", "seconds"))
    table = GenotypeTable(path, space)
    assert table.column("a_valid", space.parse(line[0])) == 85
    assert table.seconds == {line[0]: 3.5}
    assert table.datasets == ("a_valid",)


def test_a_sample_is_of_the_table_and_begins_with_the_smaller(rows, tmp_path):
    space = DartsSpace()
    lines = rows(space, 12)
    table = GenotypeTable(write(tmp_path / "t.csv", lines, ("genotype", "v", "w")), space)
    sample = table.sample(space, 12, seed=1)
    assert {space.notation(genotype) for genotype in sample} == {line[0] for line in lines}
    assert table.sample(space, 5, seed=1) == sample[:5]
    assert table.sample(space, 12, seed=2) != sample
    with pytest.raises(InputError, match="at most the table's 12 architectures, got 13"):
        table.sample(space, 13, seed=1)


def test_an_architecture_that_is_not_in_it(rows, tmp_path, generator):
    space = DartsSpace()
    table = GenotypeTable(write(tmp_path / "t.csv", rows(space), ("genotype", "v", "w")), space)
    other = space.sample(generator)
    assert table.describe(other) == {}
    with pytest.raises(InputError, match="expected an architecture of"):
        table.column("v", other)


@pytest.mark.parametrize(
    ("header", "changed", "message"),
    [
        (("cell", "v", "w"), {}, "expected a column genotype or arch, or columns matrix and ops"),
        (("arch", "v", "w"), {0: "resnet"}, r"row 2\)"),
        (("arch", "v", "w"), {1: "good"}, r"expected a number in v, got 'good' \(in .*row 2\)"),
        (("arch", "v", "w"), {2: "nan"}, "expected a number in w, got 'nan'"),
    ],
)
def test_a_wrong_file_is_one_line(rows, tmp_path, header, changed, message):
    lines = rows(NasBench201())
    lines[1] = [changed.get(index, entry) for index, entry in enumerate(lines[1])]
    with pytest.raises(InputError, match=message):
        GenotypeTable(write(tmp_path / "t.csv", lines, header), NasBench201())


def test_what_spreadsheets_write_is_read(rows, tmp_path):
    path, space = tmp_path / "t.csv", NasBench201()
    text = "".join(f"{','.join(map(str, line))}\r\n" for line in [("arch", "v", "w"), *rows(space)])
    path.write_bytes(text.encode("utf-8-sig") + b"\r\n\r\n")
    assert GenotypeTable(path, space).datasets == ("v", "w")
    path.write_text(text.replace(",", ";"), encoding="utf-8")
    with pytest.raises(InputError, match="expected commas between the columns, got 'arch;v;w'"):
        GenotypeTable(path, space)


def test_a_column_that_begins_without_a_number_is_not_passed_over(rows, tmp_path):
    lines = rows(NasBench201())
    lines[0][1] = "nan"
    path = write(tmp_path / "t.csv", lines, ("arch", "v", "w"))
    with pytest.raises(InputError, match=r"expected a number in v, got 'nan' \(in .*row 1\)"):
        GenotypeTable(path, NasBench201())


def test_other_mistakes(rows, tmp_path):
    lines = rows(NasBench201())
    path = write(tmp_path / "t.csv", lines, ("arch", "cifar10_valid", "test"))
    with pytest.raises(InputError, match="did you mean 'cifar10_valid'"):
        GenotypeTable(path, NasBench201(), "cifar10_vald")
    with pytest.raises(InputError, match="expected a table"):
        GenotypeTable(tmp_path / "none.csv", NasBench201())
    with pytest.raises(InputError, match="expected at least one architecture"):
        GenotypeTable(write(tmp_path / "e.csv", [], ("arch", "v")), NasBench201())
    with pytest.raises(InputError, match="validation accuracies"):
        GenotypeTable(path, NasBench201(), "test").validation_column()
    with pytest.raises(InputError, match="space=nasbench201"):
        GenotypeTable(path, NasBench201()).check_space(DartsSpace())
