"""Scores by default beside those of the equations."""

import csv
from functools import partial

import numpy as np
import pytest

from nas_lightning.data import Digits, SearchData
from nas_lightning.spaces import NasBench201
from reproductions.hnas import Coupling

FORMS = "by default", "equation"


@pytest.fixture
def parts():
    space = NasBench201()
    return space, partial(space.network, in_channels=1, num_classes=10, channels=4, cells=1)


def test_rows_are_of_the_architectures(parts, tmp_path):
    space, network = parts
    data = SearchData(Digits(batch_size=6))
    (table,) = Coupling(cells=8, resamples=20).run(space, network, data, tmp_path).tables
    rows = {row[0]: row[1:] for row in table.rows}
    assert set(rows) == {"M_Trace", "κ", "M_GraSP"}
    count, ours, theirs, ratio, order = rows["M_Trace"]
    assert 0 < count <= 8
    assert ours != theirs  # norms couple images
    assert -1 <= order.value <= 1
    assert ratio.value == pytest.approx(np.log10(ours / theirs), abs=0.3)


def test_medians_are_of_the_scores(parts, tmp_path):
    space, network = parts
    data = SearchData(Digits(batch_size=4))
    (table,) = Coupling(cells=6, resamples=5).run(space, network, data, tmp_path).tables
    lines = list(csv.DictReader((tmp_path / "scores" / "main.csv").read_text().splitlines()))
    for name, count, *medians, _, _ in table.rows:
        pairs = np.array([[float(line[f"{name}, {form}"]) for form in FORMS] for line in lines])
        sound = pairs[(np.isfinite(pairs) & (pairs > 0)).all(axis=1)]
        assert len(sound) == count
        assert medians == pytest.approx(np.median(sound, axis=0), rel=1e-5)
