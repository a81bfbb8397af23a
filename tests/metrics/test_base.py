"""The contract of every metric in `conf/metric`."""

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


def test_networks_of_layers(generator, images):
    """Networks of `mlp`, the only ones that some metrics are for."""
    space = Mlp(layers=4)
    network = space.network(space.sample(generator), in_channels=3, num_classes=5, width=8)
    before = snapshot(network)
    for name, metric in EVERY.items():
        value = float(metric(network, images))
        assert value == value, name
        assert alike(before, snapshot(network)), name


def test_never_positive_metrics(generator, images):
    metrics = {name: metric for name, metric in METRICS.items() if metric.never_positive}
    for scale in (1e-3, 1.0, 1e3):
        space = NasBench201()
        network = space.network(space.sample(generator), in_channels=3, num_classes=5, channels=2, cells=1)
        initialize(network, "lecun", generator)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter *= scale
        for name, value in score(network, images, metrics).items():
            assert value <= 1e-5, name  # up to the constants that keep them from dividing by 0


def test_metrics_leave_the_network_unchanged(derived, images):
    parameters = list(derived.parameters())
    parameters[0].grad = torch.ones_like(parameters[0])
    parameters[1].requires_grad_(False)
    next(derived.children()).eval()
    before = snapshot(derived)
    for name, metric in METRICS.items():
        value = metric(derived, images)
        assert alike(before, snapshot(derived)), name
        assert torch.isfinite(value), name
        assert value.shape == (), name


def test_values_depend_only_on_weights_and_batch(derived, images):
    """And not on mode, dropout, random numbers, or whether gradients are enabled."""
    first = {name: metric(derived, images) for name, metric in METRICS.items()}
    torch.rand(3)
    derived.eval()
    with torch.no_grad():
        for name, metric in METRICS.items():
            assert metric(derived, images) == first[name], name


def test_degenerate_network_has_the_worst_value(images):
    space = NasBench201()
    cell = space.parse("|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|none~0|none~1|none~2|")
    network = space.network(cell, in_channels=3, num_classes=5, channels=4, cells=1)
    for name, metric in METRICS.items():
        value = float(metric(network, images))
        assert value == value, name  # not NaN
        if metric.counts_only:
            assert value > 0, name
        else:
            assert value == metric.worst_value, name
            assert metric.orient(value) == -torch.inf, name


@pytest.mark.filterwarnings("ignore:all weights of the last layer")
@pytest.mark.parametrize("kind", ["zero weights", "one class certain", "infinite"])
def test_no_value_is_nan(kind, derived, images):
    with torch.no_grad():
        if kind == "zero weights":
            for parameter in derived.parameters():
                parameter.zero_()
        elif kind == "one class certain":
            derived.head.weight.zero_()
            derived.head.bias.copy_(torch.tensor([1e4, 0, 0, 0, 0]))
        else:
            derived.head.weight.fill_(torch.inf)
    for name, value in score(derived, images, METRICS).items():
        assert value == value, name


def test_metrics_together_equal_metrics_alone(derived, images):
    derived, images = derived.double(), (images[0].double(), images[1])
    together = score(derived, images, METRICS)
    assert list(together) == list(METRICS)
    for name, metric in METRICS.items():
        assert together[name] == pytest.approx(float(metric(derived, images)), rel=1e-9), name


def test_orientation():
    assert NTKCondition().orient(3.0) == -3.0
    assert GradNorm().orient(3.0) == 3.0


def test_wrong_use_raises(images):
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))
    with pytest.raises(InputError, match="at least one metric"):
        score(network, images, {})
    network[1].weight.requires_grad_(False)
    with pytest.raises(InputError, match="weights to train"):
        Grasp()(network, images)
    with pytest.raises(InputError, match="parameters to train"):
        GradNorm()(network.requires_grad_(False), images)
    with pytest.raises(InputError, match=r"must have shape \(m, classes\), got \(6, 5, 6, 6\)"):
        GradNorm()(nn.Conv2d(3, 5, 3), images)


def test_failing_network_is_restored(derived, images):
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
