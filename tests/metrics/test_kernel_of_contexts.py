"""The kernel where layers depend on more than their input and parameters, against each sample's gradient."""

import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.metrics import ntk
from nas_lightning.metrics import recording as notices
from tests.metrics.test_kernel_any import CLASSES, LABELS, Small, linear, oracle, same, table, tokens, words


@pytest.fixture(autouse=True)
def _said_anew() -> None:
    notices.say_row_by_row.cache_clear()


class Scale(nn.Module):
    """What it computes depends on an argument, and on an attribute that others set."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.shift = nn.Parameter(torch.rand(6)), 0.0

    def forward(self, x: Tensor, scale: float = 1.0, others: tuple[Tensor, ...] = ()) -> Tensor:
        return (self.weight * x * scale + self.shift + sum(others)).tanh()


class Wants(Scale):
    """Without its argument it cannot be called."""

    def forward(self, x: Tensor, scale: float) -> Tensor:
        return super().forward(x, scale)


class Shift(Scale):
    """Its gradient knows its output alone, so that its input may be changed afterwards."""

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.weight).tanh()


class Noise(Scale):
    """It draws numbers, also where nothing is trained."""

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight * torch.randn_like(x)


class Kept(nn.Module):
    """Attention's biases, which are looked up once where nothing is trained, as LeViT has them."""

    def __init__(self) -> None:
        super().__init__()
        self.biases, self.kept = nn.Parameter(torch.randn(3)), None
        self.head = nn.Linear(6, CLASSES)
        self.register_buffer("places", torch.tensor([0, 1, 2, 2, 1, 0]))

    def train(self, mode: bool = True) -> nn.Module:
        self.kept = None if mode else self.kept
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = self.biases[self.places]
        return self.head((x * self.kept).tanh())


class Generated(nn.Module):
    """The weights of a layer are made by another."""

    def __init__(self) -> None:
        super().__init__()
        self.make, self.body, self.head = nn.Linear(2, 36), nn.Linear(6, 6, bias=False), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.make(torch.ones(2, dtype=x.dtype)).view(6, 6)
        return self.head(functional_call(self.body, {"weight": weight}, x).tanh())


def hooked(make) -> nn.Module:
    network = Small(lambda n, x: n.head(n.layer(x).tanh()), layer=linear())
    make(network.layer)
    return network


def conditioned(network: Small, x: Tensor) -> Tensor:
    network.layer.shift = x.sum(1, keepdim=True)
    y = network.layer(x)
    network.layer.shift = 0.0
    return network.head(y)


def changed_afterwards(network: Small, x: Tensor) -> Tensor:
    x = x.clone()
    y = network.layer(x)
    return network.head(y + x.mul_(3))


def in_vain_and_outside(network: Small, x: Tensor) -> Tensor:
    network.layer(2 * x)
    return network.head(network.layer(x).tanh() + F.linear(x, network.layer.weight))


def set_forward(layer: nn.Linear) -> None:
    layer.forward = lambda x: F.linear(x, 3 * layer.weight, layer.bias)


BY_LAYERS = {
    "an output that a hook changes": lambda: hooked(
        lambda layer: layer.register_forward_hook(lambda _, given, output: 2 * output)
    ),
    "an input that a hook changes": lambda: hooked(
        lambda layer: layer.register_forward_pre_hook(lambda _, given: (2 * given[0],))
    ),
    "a forward pass of the instance": lambda: hooked(set_forward),
    "weights by a hook": lambda: hooked(
        lambda layer: nn.utils.prune.random_unstructured(layer, "weight", 0.4)
    ),
}
BY_ROWS = {
    "another argument": lambda: Small(lambda n, x: n.head(n.layer(x, 2.5)), layer=Scale()),
    "an argument that has to be": lambda: Small(lambda n, x: n.head(n.layer(x, 2.5)), layer=Wants()),
    "one by keyword": lambda: Small(lambda n, x: n.head(n.layer(x, scale=2.5)), layer=Scale()),
    "a list": lambda: Small(lambda n, x: n.head(n.layer(x, others=[x])), layer=Scale()),
    "an attribute": lambda: Small(conditioned, layer=Scale()),
    "an input that is changed afterwards": lambda: Small(changed_afterwards, layer=Shift()),
    "a call in vain, a weight outside": lambda: Small(in_vain_and_outside, layer=nn.Linear(6, 6, bias=False)),
    "samples one by one": lambda: Small(
        lambda n, x: vmap(lambda one: n.head(n.layer(one)))(x), layer=linear()
    ),
    "weights that are made": Generated,
    "kept in evaluation": Kept,
    "one number of samples": lambda: Small(lambda n, x: n.head(n.layer(x.view(5, 6))), layer=linear()),
    "samples that a softmax joins": lambda: Small(
        lambda n, x: n.head(n.layer(x) - n.layer(x).mean(0)).softmax(1), layer=linear()
    ),
}


@pytest.mark.parametrize("name", BY_LAYERS)
def test_what_others_hang_on_layers_is_accounted_for(name):
    torch.manual_seed(0)
    network = BY_LAYERS[name]().double().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(ntk(network, (tokens(6), LABELS)), oracle(network, tokens(6)))


@pytest.mark.parametrize("name", BY_ROWS)
def test_what_a_layer_alone_does_not_tell_is_computed_by_rows(name):
    torch.manual_seed(0)
    network = BY_ROWS[name]().double().eval()
    with pytest.warns(UserWarning, match="row by row"):
        kernel = ntk(network, (tokens(6), LABELS))
    same(kernel, oracle(network, tokens(6)))


def test_numbers_that_a_layer_draws_are_those_of_the_forward_pass():
    network, x = Small(lambda n, x: n.head(n.layer(x)), layer=Noise()).double().eval(), tokens(6)
    torch.manual_seed(3)
    with pytest.warns(UserWarning, match="Noise gives another output for the same input"):
        kernel = ntk(network, (x, LABELS))
    torch.manual_seed(3)
    logits = network(x)
    rows = [
        torch.cat(
            [g.flatten() for g in torch.autograd.grad(value, [*network.parameters()], retain_graph=True)]
        )
        for value in logits.gather(1, LABELS[:, None])[:, 0]
    ]
    same(kernel, torch.stack(rows) @ torch.stack(rows).T)


def test_what_is_kept_in_evaluation_is_computed_anew():
    """Also where it was looked up without gradients before; and it is not kept afterwards."""
    network, x = Kept().double().eval(), tokens(6)
    expected = oracle(network, x)
    network.train().eval()
    with torch.no_grad():
        network(x)
    with pytest.warns(UserWarning, match="row by row"):
        same(ntk(network, (x, LABELS)), expected)
    assert not network.training
    network(x).sum().backward()
    assert bool(network.biases.grad.any())


@pytest.mark.parametrize(
    "forward",
    [
        lambda n, x: n.head((n.layer(x) - 3 * n.layer(x).mean(0)).mean(1)),
        lambda n, x: n.head(n.layer(x.transpose(0, 1)).tanh().mean(0)),
    ],
    ids=["mixed", "on the second axis"],
)
def test_two_samples_are_enough_to_see_that_they_are_not_apart(forward):
    torch.manual_seed(0)
    network, x, labels = Small(forward, layer=linear()).double(), tokens(2, 6)[:2], LABELS[:2]
    with pytest.warns(UserWarning, match="row by row"):
        same(ntk(network, (x, labels)), oracle(network, x, labels=labels))


def test_words_that_are_mixed_a_little_are_seen():
    forward = lambda n, x: n.head(n.table(x).tanh().mean(1) + 1e-3 * n.table(x).mean((0, 1)))  # noqa: E731
    network = Small(forward, table=table()).double()
    with pytest.warns(UserWarning, match="samples are mixed"):
        same(ntk(network, (words(), LABELS)), oracle(network, words()))


@pytest.mark.parametrize("coupled", [False, True])
def test_gradients_of_few_words(coupled):
    network = Small(lambda n, x: n.head(n.table(x).tanh().mean(1)), table=table()).double()
    expected = oracle(network, words())
    network.table.sparse = True
    same(ntk(network, (words(), LABELS), coupled=coupled), expected)


def test_layers_without_shapes_are_one_line():
    with pytest.raises(InputError, match="expected a network that has seen images"):
        ntk(nn.LazyLinear(CLASSES), (tokens(6), LABELS))
