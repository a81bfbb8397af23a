"""The strategies of version 0.1, which were classes, are compositions that take the same steps."""

import json
from pathlib import Path

import pytest

from nas_lightning.strategies.derivation.perturbation import Perturbation
from tests.strategies.oneshot.fits_of_0_1 import SEARCHES, record

RECORD = json.loads(Path(__file__).with_name("fits_of_0_1.json").read_text())


def test_every_search_is_recorded():
    assert set(RECORD) == set(SEARCHES)


@pytest.mark.parametrize("name", SEARCHES)
def test_twenty_steps(name):
    """Rounding differs between processors; where it does not, neither does a bit of the state."""
    old, new = RECORD[name], record(name, Perturbation)
    assert new["genotype"] == old["genotype"]
    assert new["generator"] == old["generator"]
    assert new["arch"].keys() == old["arch"].keys()
    for key, matrix in old["arch"].items():
        assert flat(new["arch"][key]) == pytest.approx(flat(matrix), rel=1e-9, abs=1e-12), key
    assert new["weights"] == pytest.approx(old["weights"], rel=1e-11)
    assert old["metrics"].keys() <= new["metrics"].keys()
    assert {k: new["metrics"][k] for k in old["metrics"]} == pytest.approx(old["metrics"], rel=1e-6)
    if "perturbed" in old:
        assert new["perturbed"][0] == old["perturbed"][0]
        assert new["perturbed"][1] == pytest.approx(old["perturbed"][1], rel=1e-11)


def flat(matrix):
    return [value for row in matrix for value in (row if isinstance(row, list) else [row])]
