"""Networks that are called otherwise, or return something else: they are trained, or one line says why."""

import re
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import nas_lightning
from nas_lightning.data import Fake
from nas_lightning.metrics import ntk
from nas_lightning.objectives.counts import cost
from nas_lightning.training import Retrain

CLASSES = 4
DATA = {"shape": (1, 8, 8), "train_size": 16, "test_size": 16, "batch_size": 8}
IMAGES, LABELS = (
    torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0)),
    torch.arange(5) % CLASSES,
)
Named = namedtuple("Named", "features logits")


@dataclass
class Output:
    logits: Tensor
    loss: Tensor | None = None


class Entries(OrderedDict):
    """A dict that is a class of its own, as those of transformers are."""


class Own(nn.Module):
    """A convolution and a classifier; `forward` is of each case."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, CLASSES)

    def maps(self, x: Tensor) -> Tensor:
        return self.conv(x).relu()

    def logits(self, x: Tensor) -> Tensor:
        return self.head(self.maps(x).mean((2, 3)))


def network(forward) -> nn.Module:
    torch.manual_seed(0)
    return type("Foreign", (Own,), {"forward": forward})()


def trainer() -> pl.Trainer:
    off = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    return pl.Trainer(max_epochs=1, accelerator="cpu", **dict.fromkeys(off, False))


def with_loss(self, pixel_values, labels=None):
    z = self.logits(pixel_values)
    return Entries(loss=None if labels is None else F.cross_entropy(z, labels), logits=z)


TAKEN = {
    "a dict": lambda self, x: {"features": self.maps(x), "logits": self.logits(x)},
    "a dict of one": lambda self, x: {"scores": self.logits(x)},
    "a class of dicts, a loss where labels are": with_loss,
    "a data class": lambda self, x: Output(self.logits(x)),
    "a named tuple": lambda self, x: Named(self.maps(x), self.logits(x)),
    "a tuple": lambda self, x: (self.logits(x), self.maps(x)),
    "options by keyword": lambda self, x, *, scale=1.0: scale * self.logits(x),
}
CALLED_OTHERWISE = {
    "by keyword": (lambda self, *, pixels: self.logits(pixels), r"forward\(\*, pixels\)"),
    "another input": (lambda self, x, mask: self.logits(x), r"forward\(x, mask\)"),
    "labels": (lambda self, x, labels: F.cross_entropy(self.logits(x), labels), r"forward\(x, labels\)"),
}
RETURNED = {
    "entries called otherwise": (
        lambda self, x: {"features": self.maps(x).mean((2, 3)), "classes": self.logits(x)},
        "expected logits from the network, .* got 'features, classes'",
    ),
    "maps first": (
        lambda self, x: (self.maps(x), self.logits(x)),
        r"expected logits \(8, 4\), got \(8, 4, 6, 6\)",
    ),
    "classes": (lambda self, x: self.logits(x).argmax(1), r"expected logits \(8, 4\), got \(8,\)"),
    "other classes": (lambda self, x: self.logits(x)[:, :2], r"expected logits \(8, 4\), got \(8, 2\)"),
    "a loss in training": (
        lambda self, x: {"loss": self.logits(x).sum()} if self.training else self.logits(x),
        r"expected logits \(8, 4\), got \(\)",
    ),
    "probabilities": (lambda self, x: self.logits(x).softmax(1), "leave the last softmax out"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_it_is_trained_as_with_logits_alone(name, tmp_path):
    made, plain = network(TAKEN[name]), network(lambda self, x: self.logits(x))
    torch.testing.assert_close(ntk(made, (IMAGES, LABELS)).matrix, ntk(plain, (IMAGES, LABELS)).matrix)
    losses = []
    for each in (made, plain):
        fit, module, data = trainer(), Retrain(each, CLASSES), Fake(**DATA)
        fit.fit(module, data)
        losses.append(fit.test(module, data, verbose=False)[0]["test_loss"])
    assert losses[0] == losses[1]
    assert cost(made, (1, 8, 8)).params == cost(plain, (1, 8, 8)).params
    assert nas_lightning.export(made, tmp_path / "network.pt2", (1, 8, 8)).difference < 1e-5


@pytest.mark.parametrize("name", CALLED_OTHERWISE)
def test_one_line_says_how_it_is_to_be_called(name, refusal, tmp_path):
    forward, got = CALLED_OTHERWISE[name]
    for use in (
        lambda made: Retrain(made, CLASSES),
        lambda made: ntk(made, (IMAGES, LABELS)),
        lambda made: cost(made, (1, 8, 8)),
    ):
        said = refusal(use, network(forward))
        assert re.search(rf"expected a network of images alone, forward\(x\), got '{got}'", said), said
    said = refusal(nas_lightning.export, network(forward), tmp_path / "network.pt2", (1, 8, 8))
    assert "expected a network that takes images of (1, 8, 8)" in said


@pytest.mark.parametrize("name", RETURNED)
def test_one_line_says_what_it_is_to_return(name, refusal):
    forward, line = RETURNED[name]
    said = refusal(trainer().fit, Retrain(network(forward), CLASSES), Fake(**DATA))
    assert re.search(line, said), said
