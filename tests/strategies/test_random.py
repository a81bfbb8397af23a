"""Architectures drawn uniformly."""

from types import SimpleNamespace

import pytest

from nas_lightning.errors import InputError
from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.spaces import base as sampling
from nas_lightning.strategies import RandomSearch


def test_distinct_and_reproducible():
    found = RandomSearch(NasBench201(), count=200, seed=3).derive()
    assert len(set(found)) == 200
    assert RandomSearch(NasBench201(), count=200, seed=3).derive() == found
    assert RandomSearch(NasBench201(), count=200, seed=4).derive() != found


def test_operations_are_uniform():
    """1,200 architectures of 6 edges: 1,440 of each of the five operations expected."""
    ops = [op for genotype in RandomSearch(NasBench201(), count=1200).derive() for op in genotype.ops]
    counts = [ops.count(op) for op in NasBench201().groups["cell"].ops]
    assert sum((count - 1440) ** 2 / 1440 for count in counts) < 23.5  # 4 degrees of freedom, p = 10⁻⁴


def test_the_whole_of_a_small_space():
    found = RandomSearch(DartsSpace(nodes=1, ops=["none", "skip_connect"]), count=1).derive()
    assert len(found) == 1


def test_more_than_a_space_has(monkeypatch):
    monkeypatch.setattr(sampling, "_MAX_REPEATS", 100)
    with pytest.raises(InputError, match="as the space has: found 1, got 2"):
        RandomSearch(DartsSpace(nodes=1, ops=["skip_connect"]), count=2)


@pytest.mark.parametrize("count", [0, -1])
def test_none_at_all(count):
    with pytest.raises(InputError, match="expected count of at least 1"):
        RandomSearch(NasBench201(), count=count)


def test_several_processes_have_nothing_to_share():
    """DistributedDataParallel refuses a module without parameters; its reason is found before it is built."""
    search = RandomSearch(NasBench201())
    search.trainer = SimpleNamespace(world_size=2)
    with pytest.raises(InputError, match="expected one process, for a search that trains nothing, got 2"):
        search.setup("fit")
