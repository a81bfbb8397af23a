"""Metrics of networks that are not of our spaces: other activations, heads, norms and tasks."""

import math

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import R2Score

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.metrics import (
    GradNorm,
    Jacov,
    Naswot,
    NTKSqrtMeanDiagonal,
    Snip,
    Swap,
    Synflow,
    Vkdnw,
    Zico,
    ntk,
    score,
)
from nas_lightning.metrics import recording as notices
from nas_lightning.metrics.recording import initialize
from nas_lightning.spaces import Mlp, NasBench201
from nas_lightning.strategies import MetricSearch
from nas_lightning.tasks import Binary, CustomTask, MultiLabel, Regression, Segmentation
from tests.own_tasks import MADE, OUTPUTS, Made

M = 6
LABELS = torch.arange(M) % 3
PIECES = {
    "ReLU": (nn.ReLU(), (0.0,)),
    "ReLU in place": (nn.ReLU(inplace=True), (0.0,)),
    "LeakyReLU": (nn.LeakyReLU(0.1), (0.0,)),
    "LeakyReLU in place": (nn.LeakyReLU(inplace=True), (0.0,)),
    "PReLU": (nn.PReLU(), (0.0,)),
    "RReLU": (nn.RReLU(), (0.0,)),
    "ELU": (nn.ELU(), (0.0,)),
    "SELU": (nn.SELU(), (0.0,)),
    "CELU": (nn.CELU(), (0.0,)),
    "GELU": (nn.GELU(), (0.0,)),
    "SiLU in place": (nn.SiLU(inplace=True), (0.0,)),
    "Mish": (nn.Mish(), (0.0,)),
    "ReLU6": (nn.ReLU6(), (0.0, 6.0)),
    "Hardtanh": (nn.Hardtanh(), (-1.0, 1.0)),
    "Hardswish": (nn.Hardswish(), (-3.0, 3.0)),
    "Hardsigmoid": (nn.Hardsigmoid(), (-3.0, 3.0)),
    "Hardshrink": (nn.Hardshrink(), (-0.5, 0.5)),
    "Softshrink": (nn.Softshrink(1.0), (-1.0, 1.0)),
    "Threshold": (nn.Threshold(2.0, 0.0), (2.0,)),
}


class Scaled(nn.Module):
    """One hidden layer, whose inputs to the activation reach all its pieces."""

    def __init__(self, activation) -> None:
        super().__init__()
        self.inner, self.activation, self.head = nn.Linear(4, 40), activation, nn.Linear(40, 3)

    def hidden(self, x: Tensor) -> Tensor:
        return 6 * self.inner(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.activation(self.hidden(x)))


class Function(nn.Module):
    """An activation that is written as a function."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.fixture
def batch(generator) -> tuple[Tensor, Tensor]:
    return torch.randn(M, 4, generator=generator), LABELS


@pytest.mark.parametrize("name", PIECES)
def test_units_of_all_activations_are_counted(name, batch):
    activation, breaks = PIECES[name]
    network = Scaled(activation)
    piece = torch.bucketize(network.hidden(batch[0]).detach(), torch.tensor(breaks))
    assert len(piece.unique()) == len(breaks) + 1
    kernel = (piece[:, None] == piece[None]).sum(dim=2).double()
    assert Naswot()(network, batch) == pytest.approx(float(torch.logdet(kernel)))
    columns = {tuple(row) for point in breaks for row in (network.hidden(batch[0]) > point).T.tolist()}
    assert Swap()(network, batch) == len(columns)


@pytest.mark.parametrize("clip", [lambda x: x.clamp(min=0), lambda x: x.clamp_min(0), lambda x: x.clip(0)])
def test_a_clamp_at_zero_is_a_rectifier(clip, batch):
    network = Scaled(nn.ReLU())
    expected = Naswot()(network, batch)
    network.activation = Function(clip)
    assert Naswot()(network, batch) == expected
    network.activation = Function(lambda x: F.relu(x) + 0 * x.clamp(min=1e-6))  # which only keeps off zero
    assert Naswot()(network, batch) == expected


@pytest.mark.parametrize("metric", [Naswot(), Swap()])
def test_network_without_rectifiers_raises(metric, batch):
    with pytest.raises(InputError, match=r"piecewise linear activations, such as ReLU.*got 'none in Scaled'"):
        metric(Scaled(nn.Tanh()), batch)


def test_architecture_without_rectifiers_has_the_worst_value(batch):
    space = Mlp(layers=4)
    names = iter(range(100))
    while True:  # one whose layers are all smooth
        genotype = space.sample(torch.Generator().manual_seed(next(names)))
        if "relu" not in space.notation(genotype) and "swish" not in space.notation(genotype):
            break
    network = space.network(genotype, in_channels=3, num_classes=5, width=8)
    images = torch.randn(M, 3, 8, 8), LABELS
    assert (float(Naswot()(network, images)), float(Swap()(network, images))) == (-math.inf, 0.0)


def test_zero_last_layer_warns(batch):
    """Its own gradient is there, and only that: (p − y) hᵀ of the hidden units h."""
    notices.warn_zero_last_layer.cache_clear()
    network = Scaled(nn.ReLU()).double()
    nn.init.zeros_(network.head.weight)
    nn.init.zeros_(network.head.bias)
    x = batch[0].double()
    message = "all weights of the last layer of Scaled, 'head', are zero.*`initialize"
    with pytest.warns(UserWarning, match=message) as said:
        values = score(
            network, (x, LABELS), {"norm": GradNorm(per_layer=False), "trace": NTKSqrtMeanDiagonal()}
        )
    assert len(said) == 1
    GradNorm()(network, (x, LABELS))  # said once
    h = network.activation(network.hidden(x)).detach()
    wrong = torch.full((M, 3), 1 / 3, dtype=torch.float64) - F.one_hot(LABELS)
    gradient = torch.cat([(wrong.T @ h / M).flatten(), wrong.mean(0)])
    assert values["norm"] == pytest.approx(float(gradient.norm()))
    assert values["trace"] == pytest.approx(math.sqrt(float((h.square().sum(1) + 1).mean())))
    initialize(network)
    assert GradNorm()(network, (x, LABELS)) > 0
    nn.init.zeros_(network.head.weight)
    nn.init.zeros_(network.inner.weight)  # and now nothing reaches it
    assert GradNorm()(network, (x, LABELS)) == -math.inf


def test_synflow_skips_norms_of_one_pixel(batch):
    def build(*norms: nn.Module) -> nn.Module:
        torch.manual_seed(0)
        body = nn.Conv2d(2, 4, 3), nn.AdaptiveAvgPool2d(1), *norms, nn.ReLU(), nn.Flatten(), nn.Linear(4, 3)
        return nn.Sequential(*body)

    images = torch.randn(M, 2, 6, 6), LABELS
    plain = Synflow()(build(), images)
    norms = {
        "batch": nn.BatchNorm2d(4),
        "group": nn.GroupNorm(2, 4),
        "layer": nn.LayerNorm((4, 1, 1)),
        "untracked": nn.BatchNorm2d(4, track_running_stats=False),
    }
    for name, norm in norms.items():
        assert Synflow()(build(norm), images) == plain, name
        assert "forward" not in vars(norm)


class Mixing(nn.Module):
    """Batch norm, and a mean over the samples beside it."""

    def __init__(self, tracked: bool) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
        self.norm = nn.BatchNorm1d(8, track_running_stats=tracked)

    def forward(self, x: Tensor) -> Tensor:
        z = self.norm(self.inner(x)).relu()
        return self.head(z - z.mean(0))


@pytest.mark.parametrize("tracked", [True, False])
def test_mixed_samples_warn_despite_batch_norms(tracked, batch):
    """The kernel is then J Jᵀ of the whole batch, as with `coupled`."""
    notices.warn_row_by_row.cache_clear()
    network = Mixing(tracked)
    state = {name: value.clone() for name, value in network.state_dict().items()}
    with pytest.warns(UserWarning, match="samples are mixed"):
        kernel = ntk(network, batch)
    assert torch.equal(kernel.matrix, ntk(network, batch, coupled=True).matrix)
    assert all(torch.equal(value, network.state_dict()[name]) for name, value in state.items())
    assert (network.norm.running_mean is None) != tracked
    apart = nn.Sequential(network.inner, network.norm, nn.ReLU(), network.head)
    assert not torch.equal(ntk(apart, batch).matrix, ntk(apart, batch, coupled=True).matrix)


TASKS = {
    "regression": Regression(),
    "multi_label": MultiLabel(),
    "binary": Binary(),
    "segmentation": Segmentation(),
}


def network_of(name: str) -> nn.Module:
    cell = NasBench201().parse("|nor_conv_3x3~0|+|none~0|nor_conv_1x1~1|+|skip_connect~0|none~1|none~2|")
    sizes = {"in_channels": 1, "num_classes": OUTPUTS[name], "channels": 4, "cells": 1}
    torch.manual_seed(0)
    return TASKS[name].fit(NasBench201().network(cell, **sizes)).double()


@pytest.mark.parametrize("name", TASKS)
def test_metrics_use_the_loss_of_the_task(name):
    x, y = MADE[name](M)
    network, task, x = network_of(name), TASKS[name], x.double()
    y = task.targets(y)
    values = score(network, (x, y), {"norm": GradNorm(per_layer=False), "snip": Snip(), "jacov": Jacov()})
    network.train()
    loss = task.loss(network(x), y.double() if y.is_floating_point() else y)
    parameters = list(network.parameters())
    gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
    assert values["norm"] == pytest.approx(math.sqrt(sum(float((g**2).sum()) for g in gradients)))
    pairs = zip(parameters, gradients, strict=True)
    assert values["snip"] == pytest.approx(sum(float((p.detach() * g).abs().sum()) for p, g in pairs))
    assert math.isfinite(values["jacov"])
    assert math.isfinite(Zico()(network, (x, y)))
    with pytest.raises(InputError, match=f"multi_class, which vkdnw is of, got '{task.name}'"):
        Vkdnw()(network, (x, y))


@pytest.mark.parametrize("name", TASKS)
def test_kernel_of_other_tasks_uses_the_sum_of_outputs(name):
    x, y = MADE[name](M)
    network, x = network_of(name), x.double()
    kernel = ntk(network, (x, TASKS[name].targets(y)), batch_statistics=False).matrix
    network.eval()
    rows = []
    for sample in x:
        f = network(sample[None]).sum()
        gradients = torch.autograd.grad(f, list(network.parameters()), materialize_grads=True)
        rows.append(torch.cat([gradient.flatten() for gradient in gradients]))
    rows = torch.stack(rows)
    torch.testing.assert_close(kernel, rows @ rows.T, rtol=1e-6, atol=1e-9)


def test_metrics_use_a_custom_loss(batch):
    network = Scaled(nn.ReLU())
    network.task = CustomTask(loss=F.l1_loss, metrics={"r2": R2Score()}, score="r2", targets=lambda y: y - 1)
    y = torch.randn(M, 3)
    gradients = torch.autograd.grad(F.l1_loss(network(batch[0]), y), list(network.parameters()))
    expected = math.sqrt(sum(float((g**2).sum()) for g in gradients))
    assert GradNorm(per_layer=False)(network, (batch[0], y)) == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
@pytest.mark.parametrize("name", ["regression", "segmentation"])
def test_a_search_by_metrics_takes_the_task(name):
    space, task = NasBench201(), TASKS[name]
    data = SearchData(Made(name, 64), task=task)
    sizes = {"in_channels": 1, "num_classes": data.num_classes, "channels": 4, "cells": 1}
    metrics = {"norm": GradNorm(), "trace": NTKSqrtMeanDiagonal(), "naswot": Naswot()}
    search = MetricSearch(
        space,
        lambda g: task.fit(space.network(g, **sizes)),
        data,
        metrics=metrics,
        pool_size=4,
        pool_per_round=1,
        images=4,
    )
    off = dict.fromkeys(
        ("enable_progress_bar", "enable_model_summary", "enable_checkpointing", "logger"), False
    )
    pl.Trainer(max_steps=1, accelerator="cpu", **off).fit(search, data)
    assert len(search.scored) == 4
    assert all(value == value for scores in search.scored.values() for value in scores.values())
