"""What the studies of activations, kernels and cells find, against plain computations."""

import csv
import json

import pytest
import torch

from nas_lightning.data import Digits, SearchData
from nas_lightning.errors import InputError
from nas_lightning.metrics.infinite import infinite_ntk
from reproductions.architecture_parameters import TwoLayerOrder
from reproductions.eigen_nas import InfiniteNTK, beta3, bounds, first_coefficient, unit_vectors
from reproductions.thesis_topology import CellTopology


def test_constants_of_theorem_1():
    """2 E σ′² and E σ′ by sums over a fine grid."""
    z = torch.linspace(-12, 12, 240_001, dtype=torch.float64)
    density = torch.exp(-(z**2) / 2) / (2 * torch.pi) ** 0.5 * (z[1] - z[0])
    t = 3 * 1.0001 * 2.0001**2
    wide = t**0.5 * z
    assert beta3("tanh", 5) == pytest.approx(float(2 * ((1 - torch.tanh(wide) ** 2) ** 2 * density).sum()))
    s = torch.sigmoid(wide)
    assert beta3("sigmoid", 5) == pytest.approx(float(2 * ((s * (1 - s)) ** 2 * density).sum()))
    assert first_coefficient("tanh") == pytest.approx(float((torch.tanh(z) * z * density).sum()))
    for name, constant in (("relu", 1.0), ("leaky_relu", 1.0001), ("swish", 0.5)):
        assert beta3(name, 5) == pytest.approx(constant)  # table 1 of arXiv:2209.07238
        sigma = {
            "relu": torch.relu,
            "leaky_relu": lambda x: torch.maximum(x, 0.01 * x),
            "swish": lambda x: x * x.sigmoid(),
        }[name]
        assert first_coefficient(name) == pytest.approx(float((sigma(z) * z * density).sum()), abs=1e-6)


@pytest.mark.parametrize("names", [["swish", "tanh", "relu"], ["sigmoid", "sigmoid", "leaky_relu"]])
def test_bounds_term_by_term(names):
    b1 = {"relu": 1, "leaky_relu": 1.0001, "sigmoid": 0.125, "tanh": 2, "swish": 1}
    b2 = {**b1, "swish": 1.22}
    one, two, three = names
    alpha1, alpha2 = 1, 0
    found = bounds(names, [True, False], inputs=6, dimension=3)
    upper = b2[one] * (b2[two] + alpha1) * (b2[three] + alpha2)  # l = 1
    upper += b1[one] * (b2[two] + alpha1) * (b2[three] + alpha2)
    upper += b1[two] * b1[one] * (b2[three] + alpha2)
    upper += b1[three] * b1[one] * (b1[two] + alpha1)
    assert found.upper == pytest.approx(2 * upper)
    lower = 2 * first_coefficient(one) ** 2 * (beta3(two, 4) + alpha1) * (beta3(three, 4) + alpha2)
    assert found.lower == pytest.approx(2 * lower)


def test_kernels_over_depth():
    data = SearchData(Digits(batch_size=8))
    table = InfiniteNTK(depths=(4, 3), inputs=6, activations=["relu", "tanh"]).run(data).tables[0]
    assert [row[:3] for row in table.rows[:4]] == [["relu", s, L] for s in ("none", "all") for L in (3, 4)]
    x = unit_vectors(data, 6)
    torch.testing.assert_close(x.norm(dim=1), torch.ones(6, dtype=torch.float64))
    exact = infinite_ntk(x @ x.T, ["relu"] * 3, [True] * 2).lambda_min
    assert table.rows[3][3] == exact
    for row in table.rows:
        assert row[3] > 0
        assert (row[3] == row[4]) == (row[1] == "none")
    for wrong in ({"depths": [2]}, {"depths": []}, {"inputs": 1}):
        with pytest.raises(InputError):
            InfiniteNTK(**wrong)


def test_orders_of_alpha():
    study = TwoLayerOrder(candidates=[2, 4], models=20, refits=1, steps=200, samples=128)
    rows = {(row[0], row[1]): row for row in study.run().tables[0].rows}
    assert rows["given", 2][2:8] == [20, 20, 20, 20, 0, 0]  # theorem 1
    assert rows["given", 2][8].value == 1.0
    _, _, models, pairs, met, ordered, others, others_ordered, _, error = rows["given", 4]
    assert (models, pairs, met + others) == (20, 120, 120)
    assert ordered == met > 0  # theorem 7
    assert others_ordered < others  # without the condition it need not hold
    assert error < 1e-20
    assert rows["found", 2][9] < 0.1  # the labels were learned, nearly
    assert rows["found bilevel", 2][9] < 0.2  # also from a half for each level
    assert rows["found bilevel", 2][9] != rows["found", 2][9]
    for wrong in ({"candidates": [1]}, {"candidates": [6]}, {"models": 0}, {"refits": 101}, {"steps": 0}):
        with pytest.raises(InputError):
            TwoLayerOrder(**wrong)


def test_each_level_sees_its_own_samples():
    """With weights that stand still α fits its own side's labels, whatever the other side's say."""
    study = TwoLayerOrder(models=1, refits=0, steps=500, lr=1e-12, arch_lr=1.0)
    model, x = study.draw(3, torch.Generator().manual_seed(3))
    start, labels = model._replace(alpha=torch.full((3,), 1 / 3, dtype=torch.float64)), model.labels(x)
    found = study.find(start, (x, torch.zeros_like(labels)), (x, labels))
    left = (found.labels(x) - labels).square().mean() / (start.labels(x) - labels).square().mean()
    assert left < 1e-3
    other = study.find(start, (x, labels), (x, start.labels(x)))
    torch.testing.assert_close(other.alpha, start.alpha)


def test_bounds_of_linear_cells():
    sizes = {"connections": 0, "operations": 0, "nodes": 3, "channels": 4}
    study = CellTopology(genotypes={}, draws=20, scales=[0.25, 2.0], **sizes)
    _, smooth, spread = study.run().tables
    assert [row[-1] for row in (*smooth.rows, *spread.rows)] == ["100 %"] * 12  # what the proofs give
    assert smooth.rows[3][5] != "100 %"  # what theorem 4.3 says, for large matrices
    assert smooth.rows[3][3] > 1 > smooth.rows[2][3]  # the narrowest cell is the harder one where λ > 1
    with pytest.raises(InputError):
        CellTopology(genotypes={}, scales=[0.0])


def test_searches_of_activations(command, tmp_path):
    small = ("space.layers=4", "supernet.width=8", "dataset.subset=64", "dataset.batch_size=16")
    run = ("study=activation_search", "study.seeds=2", "study.epochs=1", *small, "run=here")
    assert command("analyze", *run).code == 0
    found = [json.loads((tmp_path / "here" / "searches" / f"{seed}.json").read_text()) for seed in (0, 1)]
    assert found[0] != found[1]
    rows = list(csv.DictReader((tmp_path / "here" / "tables" / "layers.csv").read_text().splitlines()))
    assert [row["layer"] for row in rows] == ["1", "2", "3"]
    assert float(rows[1]["tanh"]) == pytest.approx(sum(one["activation"][1][3] for one in found) / 2)
    assert float(rows[1]["α of its skip"]) == pytest.approx(sum(one["skip"][0][1] for one in found) / 2)
    assert rows[0]["kept"] == ""
    (tmp_path / "here" / "searches" / "1.json").unlink()
    assert command("analyze", "resume=here").code == 0  # what is missing is searched again
    again = json.loads((tmp_path / "here" / "searches" / "1.json").read_text())
    assert again == found[1]
    wrong = command("analyze", *run[:-1], "run=there", "space=nasbench201")
    assert wrong.code == 1
