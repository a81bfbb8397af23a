"""Bounds and kernels of Eigen-NAS against plain computations, and searches of activations."""

import csv
import json
import math
from functools import partial

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch.func import jacrev
from torch.nn import functional as F

from nas_lightning.data import Digits, Fake, SearchData
from nas_lightning.errors import InputError
from nas_lightning.metrics import GradNorm
from nas_lightning.metrics.infinite import infinite_ntk
from nas_lightning.objectives.tables import TabularNasBench201, read_nasbench201
from nas_lightning.spaces import Mlp, NasBench201
from nas_lightning.spaces.activations import ACTIVATIONS
from nas_lightning.strategies.one_shot.papers import ActivationSearch
from nas_lightning.utils.randomness import seed_of
from reproductions.eigen_nas import (
    ActivationSearchStudy,
    FiniteNTK,
    InfiniteNTK,
    KernelSelection,
    PlainNetwork,
    beta3,
    bounds,
    depth_factor,
    descend,
    error_bound,
    finite_bounds,
    first_coefficient,
    step_size,
    unit_vectors,
)
from tests.reproductions.conftest import WITH_CONF
from tests.studies.conftest import write_table


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
    study = InfiniteNTK(depths=(4, 3), inputs=6, activations=["relu", "tanh"], counts=[4, 8])
    table = study.run(data).tables[0]
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


def test_searches_of_activations(command, tmp_path):
    small = ("space.layers=4", "supernet.width=8", "dataset.subset=64", "dataset.batch_size=16")
    run = ("study=activation_search", "study.seeds=2", "study.epochs=1", *small, "run=here")
    assert command("analyze", *WITH_CONF, *run).code == 0
    found = [json.loads((tmp_path / "here" / "searches" / f"{seed}.json").read_text()) for seed in (0, 1)]
    assert found[0] != found[1]
    rows = list(csv.DictReader((tmp_path / "here" / "tables" / "layers.csv").read_text().splitlines()))
    assert [row["layer"] for row in rows] == ["1", "2", "3"]
    assert float(rows[1]["tanh"]) == pytest.approx(sum(one["activation"][1][3] for one in found) / 2)
    assert float(rows[1]["α of its skip"]) == pytest.approx(sum(one["skip"][0][1] for one in found) / 2)
    assert rows[0]["kept"] == ""
    (tmp_path / "here" / "searches" / "1.json").unlink()
    assert command("analyze", *WITH_CONF, "resume=here").code == 0  # what is missing is searched again
    again = json.loads((tmp_path / "here" / "searches" / "1.json").read_text())
    assert again == found[1]
    wrong = command("analyze", *WITH_CONF, *run[:-1], "run=there", "space=nasbench201")
    assert wrong.code == 1


SIGMAS = {
    "relu": torch.relu,
    "leaky_relu": lambda x: torch.where(x > 0, x, 0.01 * x),
    "sigmoid": lambda x: 1 / (1 + (-x).exp()) - 0.5,
    "tanh": torch.tanh,
    "swish": lambda x: x / (1 + (-x).exp()),
}


def forward(weights, x, names, skips):
    """Equation 1 as it is printed, for one input."""
    f = SIGMAS[names[0]](weights[0] @ x)
    for W, name, skip in zip(weights[1:-1], names[1:], skips, strict=True):
        f = SIGMAS[name](W @ f) + skip * f
    return (weights[-1] @ f)[0]


def network(names, skips, width=6, seed=0):
    return PlainNetwork(4, width, names, skips, torch.Generator().manual_seed(seed))


def inputs(count, dimension=4):
    x = torch.randn(count, dimension, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return F.normalize(x, dim=1)


CASES = [
    (["relu", "tanh"], [True]),
    (["swish", "sigmoid", "leaky_relu"], [False, True]),
    (["tanh"] * 4, [True, False, True]),
]


@pytest.mark.parametrize(("names", "skips"), CASES)
def test_outputs_and_kernel_are_those_of_equation_1(names, skips):
    found, x = network(names, skips), inputs(5)
    weights = tuple(found.weights)
    torch.testing.assert_close(
        found.outputs(x), torch.stack([forward(weights, one, names, skips) for one in x])
    )
    rows = [jacrev(lambda w, one=one: forward(w, one, names, skips))(weights) for one in x]
    jacobian = torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])
    torch.testing.assert_close(found.kernel(x), jacobian @ jacobian.T)


def test_weights_have_the_variance_of_the_paper():
    drawn = torch.cat([W.flatten() for W in network(["relu"] * 3, [False] * 2, width=200).weights])
    assert float(drawn.var()) == pytest.approx(1 / 200, rel=0.02)


def test_descent_is_one_step_for_each_of_the_first_inputs():
    names, skips = CASES[0]
    found, x, gamma = network(names, skips), inputs(4), 0.3
    y = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64)
    weights = [W.clone() for W in found.weights]
    for one, label in zip(x[:3], y[:3], strict=True):
        slopes = jacrev(
            lambda *w, one=one, label=label: (1 + (-label * forward(w, one, names, skips)).exp()).log(),
            argnums=tuple(range(3)),
        )(*weights)
        weights = [W - gamma * dW for W, dW in zip(weights, slopes, strict=True)]
    descend(found, x, y, gamma, 3)
    for mine, other in zip(found.weights, weights, strict=True):
        torch.testing.assert_close(mine, other)


def test_bounds_of_theorem_2_by_hand():
    """L = 4: β₃ of ReLU, LeakyReLU and Swish is 1, 1.0001 and ½, β₂ is 1, 1.0001 and 1.22."""
    found = finite_bounds(["tanh", "relu", "swish"], [True, False], 30, 10)
    assert found.lower == pytest.approx(3 * 2 * 0.5)
    assert found.upper == pytest.approx(3 * (2 * 1.22 + 1.22 + 1 + 1))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_lipschitz_constants_are_the_steepest_slopes(name):
    x = torch.linspace(-8, 8, 400_001, dtype=torch.float64)
    steepest = float((SIGMAS[name](x).diff() / x.diff()).abs().max())
    assert depth_factor([name])[1] == pytest.approx(math.sqrt(2) * (3 * steepest + 1), rel=1e-6)
    assert math.prod(depth_factor([name])) == pytest.approx(2)


def test_theorem_3_by_hand():
    y = torch.tensor([1.0, -1.0, 1.0, 1.0], dtype=torch.float64)
    bound = error_bound(["relu", "relu"], 0.25, y, 0.1)
    assert bound == pytest.approx(math.sqrt(3) * 16 * 2 + math.sqrt(math.log(10) / 4))
    kernel = torch.diag(torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64))
    expected = math.sqrt(3) / 16 * math.sqrt(1 + 0.5 + 0.25 + 0.125) / (50 * 2)
    assert step_size(["relu", "relu"], kernel, y, 50) == pytest.approx(expected)


def test_study_reports_both_bounds():
    study = FiniteNTK(
        activations=["relu"], width=16, counts=[6], dimension=5, draws=2, tested=50, kappas=[1.0]
    )
    finite, errors, order = study.run().tables
    x = study.pool.x[:6]
    expected = [
        float(torch.linalg.eigvalsh(study._network((["relu"] * 2, [False]), number).kernel(x))[0])
        for number in range(2)
    ]
    assert finite.rows[0][3].value == pytest.approx(sum(expected) / 2)
    assert finite.rows[0][4].value == pytest.approx(sum(expected) / 2 / (6 / 5))
    assert [row[1] for row in errors.rows] == ["none", "all"]
    assert 0 <= errors.rows[0][6].value <= 100
    assert order.rows[0][0] == "κ = 1"


def test_an_interrupted_search_of_activations_continues(tmp_path, monkeypatch):
    """Stopped in the second epoch, it ends where an uninterrupted one does."""
    monkeypatch.setattr("nas_lightning.studies.training._STEPS", 3)
    space = Mlp(layers=3)
    supernet = partial(space.supernet, in_channels=1, num_classes=10, width=4, side=4)
    trainer = partial(pl.Trainer, accelerator="cpu", logger=False, default_root_dir=tmp_path)

    def search(name):
        data = SearchData(Digits(batch_size=16, subset=128))
        study = ActivationSearchStudy(seeds=1, epochs=2, lr=0.1, arch_lr=0.1)
        study.run(space, supernet, data, trainer, tmp_path / name)
        assert not list((tmp_path / name).rglob("*.ckpt"))
        return json.loads((tmp_path / name / "searches" / "0.json").read_text())

    whole, step = search("whole"), ActivationSearch.training_step

    def stop(self, batch, batch_idx):
        if self.trainer.current_epoch == 1 and batch_idx == 2:
            raise InterruptedError
        return step(self, batch, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(ActivationSearch, "training_step", stop)
        with pytest.raises(InterruptedError):
            search("parts")
    assert (tmp_path / "parts" / "searches" / "0.ckpt").is_file()
    assert search("parts") == whole


SETS = ("cifar10", "cifar100", "imagenet16-120")


def test_a_selection_for_each_data_set(tmp_path):
    """Against the k of each pool sorted by hand; 12 epochs' accuracies are the reverse of the truth."""
    truth = read_nasbench201(write_table(tmp_path))
    lines = [f"{arch},{100 - value},9" for arch, value in truth["cifar10"].items()]
    (tmp_path / "valid.csv").write_text("\n".join(["arch,cifar10_valid,seconds", *lines]))
    benchmark = TabularNasBench201(tmp_path / "table.csv", validation=tmp_path / "valid.csv")
    space = NasBench201()
    network = partial(space.network, in_channels=1, num_classes=10, channels=2, cells=1)
    fake = Fake(shape=(1, 8, 8), num_classes=10, train_size=16, batch_size=4)
    sizes = {"cells": 16, "pool": 8, "pools": {"imagenet16-120": 12}, "k": [3], "searches": 4}
    study = KernelSelection(metrics={"m": GradNorm()}, by=["m"], others={"cifar100": fake}, **sizes)
    (table,) = study.run(space, network, SearchData(Digits(batch_size=4)), benchmark, tmp_path).tables

    def scores(name):
        lines = (tmp_path / "scores" / f"{name}.csv").read_text().splitlines()
        return {row["arch"]: float(row["m"]) for row in csv.DictReader(lines)}

    by_digits, by_fake = scores("main"), scores("data_cifar100")
    archs = list(by_digits)
    assert len(archs) == 16
    assert by_digits != by_fake
    twelve = {arch: 100 - value for arch, value in truth["cifar10"].items()}
    judges = {f"{name} oracle_test_accuracy": truth[name] for name in SETS}
    judges["cifar10 valid_accuracy_12_epochs"] = twelve
    of = {"cifar10": (8, by_digits), "cifar100": (8, by_fake), "imagenet16-120": (12, by_digits)}
    assert len(table.rows) == 2 * 2 * 3
    for dataset, name, k, judge, images, pool, mean, deviation in table.rows:
        size, score = of[dataset]
        ends = []
        for number in range(4):
            part = np.random.default_rng(seed_of(0, number)).permutation(16)[:size]
            drawn = [archs[place] for place in part]
            top = drawn[:3] if name == "random" else sorted(drawn, key=lambda arch: -score[arch])[:3]
            ends.append(truth[dataset][max(top, key=judges[judge].__getitem__)])
        assert (k, pool, images) == (3, size, "fake" if dataset == "cifar100" else "digits")
        assert (mean, deviation) == pytest.approx((np.mean(ends), np.std(ends, ddof=1)))


def test_selections_are_of_data_sets_of_the_table(tmp_path):
    benchmark = TabularNasBench201(write_table(tmp_path))
    space = NasBench201()
    study = KernelSelection(metrics={"m": GradNorm()}, by=["m"], pools={"imagenet": 5})
    with pytest.raises(InputError, match="expected a data set of the table"):
        study.run(space, space.network, SearchData(Digits()), benchmark, tmp_path)
