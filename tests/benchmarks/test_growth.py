"""Growth: exponents of known costs, and its table and figure from made-up ones."""

import csv

import pytest

from benchmarks.growth import COLUMNS, GROWTHS, cells_of_table, exponent, lookup, pool, write
from nas_lightning.spaces import NasBench201


@pytest.mark.parametrize("power", [0, 1, 2])
def test_the_exponent_of_a_power(power):
    sizes = [10, 20, 50]
    assert exponent(sizes, [3 * size**power for size in sizes]) == pytest.approx(power)


def test_table_and_figure(tmp_path):
    found = {name: [float(size) for size in growth.sizes] for name, growth in GROWTHS.items()}
    write(found, tmp_path)
    with (tmp_path / "growth.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == list(COLUMNS)
    assert [row[1] for row in rows] == list(GROWTHS)
    assert {row[4] for row in rows} == {"1.00"}
    assert (tmp_path / "growth.png").stat().st_size > 1000


def test_inputs_of_pools_and_tables():
    space = NasBench201()
    assert len({space.notation(genotype) for genotype in cells_of_table(300)}) == 300
    assert lookup(20)()[:21] == [*map(float, range(20)), 0.0]
    assert len(pool(2)()) == 2
