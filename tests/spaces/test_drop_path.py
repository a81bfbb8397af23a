"""Dropped paths against their definition, and their rate in a compiled function."""

import pytest
import timm.layers
import torch

from nas_lightning.models.ensemble import drop_paths
from nas_lightning.spaces.graph import DropPath


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
def test_whole_images_are_dropped_at_the_rate_and_the_mean_stays(rate):
    x = torch.randn(20_000, 2, 1, 1, dtype=torch.float64)
    y = DropPath(rate).double()(x)
    kept = (y != 0).flatten(1)
    assert torch.equal(kept[:, 0], kept[:, 1])
    torch.testing.assert_close(y[kept[:, 0]], x[kept[:, 0]] / (1 - rate))
    error = (rate * (1 - rate) / len(x)) ** 0.5
    assert abs(kept[:, 0].double().mean() - (1 - rate)) < 5 * error


@pytest.mark.parametrize(("rate", "training"), [(0.0, True), (0.5, False)])
def test_nothing_is_touched_at_rate_0_and_in_evaluation(rate, training):
    x = torch.randn(3, 2, 2, 2)
    before = torch.get_rng_state()
    assert DropPath(rate).train(training)(x) is x
    assert torch.equal(torch.get_rng_state(), before)


def test_it_is_one_beside_timms_and_has_no_state():
    module = DropPath(0.25)
    network = torch.nn.Sequential(module, timm.layers.DropPath(0.1), torch.nn.Dropout())
    assert drop_paths(network) == [network[0], network[1]]
    assert not module.state_dict()
    assert module.drop_prob == 0.25
    assert "drop_prob=0.250" in repr(module)


def test_half_precision_keeps_its_type():
    assert DropPath(0.3)(torch.ones(4, 1, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_other_rates_do_not_compile_again():
    compiled_with, module = [], DropPath()

    def backend(graph, inputs):
        compiled_with.append(graph)
        return graph

    torch._dynamo.reset()
    compiled, x = torch.compile(lambda x: module(x + 1), backend=backend), torch.zeros(64, 1)
    for rate in (0.0, 0.1, 0.2, 0.3, 0.4):
        module.drop_prob = rate
        assert set(compiled(x).flatten().tolist()) == (
            {0.0, (1 / (1 - torch.tensor(rate))).item()} if rate else {1.0}
        )
    assert len(compiled_with) == 2  # one that drops nothing, one for all rates
