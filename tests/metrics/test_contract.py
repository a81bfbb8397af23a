"""What every metric that a yaml names must do."""

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor, nn

from nas_lightning.errors import InputError
from nas_lightning.metrics import GradNorm, Grasp, Metric, NTKCondition, score
from nas_lightning.metrics.recording import initialize
from nas_lightning.options import description
from nas_lightning.spaces import Mlp, NasBench201
from tests.yamls import file, options

CONFIGS = {name: file("metric", name) for name in options("metric")}
EVERY: dict[str, Metric] = {name: instantiate(OmegaConf.load(path)) for name, path in CONFIGS.items()}
METRICS = {name: metric for name, metric in EVERY.items() if not metric.layered_only}


def test_there_are_metrics():
    assert len(METRICS) >= 14
    assert all(isinstance(metric, Metric) for metric in EVERY.values())
    assert all(map(description, CONFIGS.values()))


def snapshot(network: nn.Module) -> list[object]:
    """All that a metric could leave behind."""
    state = [value.clone() for value in network.state_dict().values()]
    grads = [None if p.grad is None else p.grad.clone() for p in network.parameters()]
    flags = [p.requires_grad for p in network.parameters()]
    modes = [module.training for module in network.modules()]
    hooks = [
        len(module._forward_hooks) + len(module._forward_pre_hooks) + len(module._backward_hooks)
        for module in network.modules()
    ]
    return [state, grads, flags, modes, hooks, torch.get_rng_state()]


def alike(a: object, b: object) -> bool:
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and torch.equal(a, b)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(alike, a, b))
    return a == b


@pytest.mark.parametrize("name", EVERY)
def test_networks_of_layers(name, generator, images):
    """`mlp`'s, the only ones that some metrics are for."""
    space = Mlp(layers=4)
    network = space.network(space.sample(generator), in_channels=3, num_classes=5, width=8)
    before = snapshot(network)
    value = float(EVERY[name](network, images))
    assert value == value
    assert alike(before, snapshot(network))


NEVER_POSITIVE = [name for name, metric in METRICS.items() if metric.never_positive]


@pytest.mark.parametrize("name", NEVER_POSITIVE)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_0_is_the_most_that_what_is_never_positive_has(name, scale, generator, images):
    """Up to what keeps it from dividing by 0."""
    for _ in range(3):
        space = NasBench201()
        network = space.network(space.sample(generator), in_channels=3, num_classes=5, channels=2, cells=1)
        initialize(network, "lecun", generator)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter *= scale
        assert float(METRICS[name](network, images)) <= 1e-5


@pytest.mark.parametrize("name", METRICS)
def test_the_network_comes_back_as_it_was(name, derived, images):
    parameters = list(derived.parameters())
    parameters[0].grad = torch.ones_like(parameters[0])
    parameters[1].requires_grad_(False)
    next(derived.children()).eval()
    before = snapshot(derived)
    value = METRICS[name](derived, images)
    assert alike(before, snapshot(derived))
    assert torch.isfinite(value)
    assert value.shape == ()


@pytest.mark.parametrize("name", METRICS)
def test_the_value_follows_from_weights_and_batch(name, derived, images):
    """Mode, dropout and the state of the random numbers do not matter; it works where gradients are off."""
    first = METRICS[name](derived, images)
    torch.rand(3)
    with torch.no_grad():
        assert METRICS[name](derived.eval(), images) == first


@pytest.mark.parametrize("name", METRICS)
def test_a_network_without_a_path_has_the_worst_value(name, images):
    space = NasBench201()
    cell = space.parse("|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|none~0|none~1|none~2|")
    network = space.network(cell, in_channels=3, num_classes=5, channels=4, cells=1)
    metric = METRICS[name]
    value = float(metric(network, images))
    assert value == value  # not NaN
    if metric.counts_only:
        assert value > 0
    else:
        assert value == metric.worst_value
        assert metric.orient(value) == -torch.inf


@pytest.mark.filterwarnings("ignore:the last layer of .* is all zeros")
@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("kind", ["zero weights", "one class certain", "infinite"])
def test_no_value_is_nan(name, kind, derived, images):
    with torch.no_grad():
        if kind == "zero weights":
            for parameter in derived.parameters():
                parameter.zero_()
        elif kind == "one class certain":
            derived.head.weight.zero_()
            derived.head.bias.copy_(torch.tensor([1e4, 0, 0, 0, 0]))
        else:
            derived.head.weight.fill_(torch.inf)
    value = float(METRICS[name](derived, images))
    assert value == value


def test_together_as_alone(derived, images):
    derived, images = derived.double(), (images[0].double(), images[1])
    together = score(derived, images, METRICS)
    assert list(together) == list(METRICS)
    for name, metric in METRICS.items():
        assert together[name] == pytest.approx(float(metric(derived, images)), rel=1e-9), name


def test_orientation():
    assert NTKCondition().orient(3.0) == -3.0
    assert GradNorm().orient(3.0) == 3.0


def test_wrong_use_is_refused(images):
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))
    with pytest.raises(InputError, match="at least one metric"):
        score(network, images, {})
    network[1].weight.requires_grad_(False)
    with pytest.raises(InputError, match="weights to train"):
        Grasp()(network, images)
    with pytest.raises(InputError, match="parameters to train"):
        GradNorm()(network.requires_grad_(False), images)
    with pytest.raises(InputError, match=r"logits \(m, classes\)"):
        GradNorm()(nn.Conv2d(3, 5, 3), images)


def test_a_failing_network_is_restored_too(derived, images):
    before = snapshot(derived)
    with pytest.raises(RuntimeError):
        score(derived, (torch.randn(6, 7, 8, 8), images[1]), METRICS)
    torch.set_rng_state(before[-1])
    assert alike(before, snapshot(derived))


@pytest.mark.parametrize("scheme", ["lecun", "kaiming", "xavier", "default"])
def test_initialize(scheme, derived):
    initialize(derived, scheme, torch.Generator().manual_seed(1))
    first = [p.clone() for p in derived.parameters()]
    torch.rand(2)
    initialize(derived, scheme, torch.Generator().manual_seed(1))
    assert all(map(torch.equal, first, derived.parameters()))
    initialize(derived, scheme, torch.Generator().manual_seed(2))
    assert not all(map(torch.equal, first, derived.parameters()))


@pytest.mark.parametrize(
    ("scheme", "variance"),
    [("lecun", 1 / 150), ("kaiming", 2 / 150), ("xavier", 2 / 650), ("default", 1 / 450)],
)
def test_initialized_variance(scheme, variance, generator):
    """fan_in = 6·25 = 150 and, as PyTorch counts it, fan_out = 20·25 = 500."""
    conv = nn.Conv2d(12, 20, 5, groups=2)
    many = nn.ModuleList(nn.Conv2d(12, 20, 5, groups=2) for _ in range(20))
    for layer in many:
        initialize(layer, scheme, generator)
    weights = torch.stack([layer.weight.detach() for layer in many])
    # a normal sample variance has a relative deviation of √(2/n)
    assert float(weights.var()) == pytest.approx(variance, rel=5 * (2 / weights.numel()) ** 0.5)
    assert bool((many[0].bias == 0).all()) == (scheme != "default")
    with pytest.raises(InputError, match="did you mean 'lecun'"):
        initialize(conv, "lecunn")  # type: ignore[arg-type]
