"""Optimizers that load no compiler, against torch's own."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn, optim

from nas_lightning.training import optimizers as eager

KINDS = [
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    ("SGD", {"lr": 0.1, "maximize": True, "foreach": True}),
    ("Adam", {"lr": 0.01, "betas": (0.5, 0.999), "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.01, "amsgrad": True}),
]


def pair(kind, options):
    """Ours and torch's, over equal networks."""
    torch.manual_seed(0)
    networks = [nn.Linear(3, 2)]
    networks.append(copy.deepcopy(networks[0]))
    built = [
        getattr(room, kind)(net.parameters(), **options)
        for room, net in zip((eager, optim), networks, strict=True)
    ]
    return networks, built


def descend(network, optimizer, steps=3, closure=False):
    x = torch.arange(12.0).view(4, 3).sin()

    def loss():
        optimizer.zero_grad()
        value = network(x).square().sum()
        value.backward()
        return value

    for _ in range(steps):
        if closure:
            assert optimizer.step(loss).requires_grad
        else:
            loss()
            assert optimizer.step() is None


@pytest.mark.parametrize("closure", [False, True])
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_steps_are_torchs_to_the_bit(kind, options, closure):
    networks, built = pair(kind, options)
    start = networks[0].weight.clone()
    for network, optimizer in zip(networks, built, strict=True):
        descend(network, optimizer, closure=closure)
    assert not torch.equal(start, networks[0].weight)
    assert all(torch.equal(*both) for both in zip(*(net.parameters() for net in networks), strict=True))
    assert repr(built[0]) == repr(built[1])


@pytest.mark.parametrize("load", ["torch's", "ours", "pickled"])
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_states_are_torchs(kind, options, load):
    """What one has written the other goes on with."""
    networks, built = pair(kind, options)
    for network, optimizer in zip(networks, built, strict=True):
        descend(network, optimizer)
    if load == "pickled":
        networks[0], built[0] = pickle.loads(pickle.dumps((networks[0], built[0])))
    else:
        reader, writer = (0, 1) if load == "torch's" else (1, 0)
        built[reader].load_state_dict(copy.deepcopy(built[writer].state_dict()))
    for network, optimizer in zip(networks, built, strict=True):
        descend(network, optimizer, steps=1)
    assert all(torch.equal(*both) for both in zip(*(net.parameters() for net in networks), strict=True))


def test_hooks_are_called_once():
    parameter = nn.Parameter(torch.ones(1))
    optim.SGD([parameter], lr=0.1)  # from now on torch's class calls hooks as well
    optimizer, calls = eager.SGD([parameter], lr=0.1), []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    optimizer.register_state_dict_post_hook(lambda *_: calls.append("written"))
    optimizer.step()
    optimizer.state_dict()
    assert calls == ["before", "after", "written"]


def test_a_step_that_is_differentiated():
    weight = torch.ones(1, requires_grad=True)
    moved = weight.clone()
    moved.retain_grad()
    optimizer = eager.SGD([moved], lr=0.5, differentiable=True)
    moved.grad = 2 * weight
    optimizer.step()
    moved.sum().backward()
    assert weight.grad.item() == 0.0  # w − 0.5 · 2w


def test_mistakes_are_torchs():
    with pytest.raises(ValueError, match="empty parameter list"):
        eager.SGD([], lr=0.1)
    with pytest.raises(TypeError, match="can only optimize Tensors"):
        eager.Adam([3])


CALLS = """
import sys, torch
from nas_lightning.training.optimizers import SGD, Adam, AdamW

for kind in (SGD, Adam, AdamW):
    parameters = [torch.nn.Parameter(torch.full((1, 2), 0.5)) for _ in range(2)]
    optimizer = kind(parameters[:1], lr=0.1)
    optimizer.add_param_group({"params": parameters[1:]})
    for parameter in parameters:
        parameter.grad = torch.ones(1, 2)
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
    assert parameters[1].grad is None
print("torch._dynamo" in sys.modules)
"""


def test_no_compiler_is_loaded():
    done = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # the compiler looks at all of it
def test_a_compiled_step():
    """Where there is a compiler, torch's own marks are heeded."""
    networks, built = pair("SGD", {"lr": 0.1, "momentum": 0.9})
    compiled = torch.compile(built[0].step, backend="eager")
    for network, optimizer, step in zip(networks, built, (compiled, built[1].step), strict=True):
        network(torch.ones(2, 3)).square().sum().backward()
        step()
        optimizer.zero_grad()
    assert all(torch.equal(*both) for both in zip(*(net.parameters() for net in networks), strict=True))
