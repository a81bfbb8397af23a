"""Rules that end a search, in searches whose architecture is known."""

import pytest
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.strategies import OneShot
from nas_lightning.strategies.one_shot.early_stop import SkipLimit, StableRanking, ranking


def with_skips(space, count):
    """Scores whose genotype has so many skips in its first cell."""
    scores = {}
    for name, group in space.groups.items():
        matrix = torch.zeros(group.shape)
        matrix[:, group.ops.index("nor_conv_3x3" if "nor_conv_3x3" in group.ops else "sep_conv_3x3")] = 1
        scores[name] = matrix
    first = next(iter(scores))
    scores[first][:count, space.groups[first].column("skip_connect")] = 2
    return scores


@pytest.mark.parametrize("space", [NasBench201(), DartsSpace(nodes=3)], ids=["nasbench201", "darts"])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_skips_of_the_first_cell_are_counted(space, count):
    scores = with_skips(space, count)
    rule = SkipLimit(limit=2)
    memory = rule.update({}, space.discretize(scores), scores, space.groups)
    assert memory == {"skips": count}
    assert rule.stops(memory) == (count >= 2)
    assert not rule.stops({})


def test_a_ranking_is_of_learned_operations():
    group = NasBench201().group
    scores = torch.zeros(6, 5)
    scores[0] = torch.tensor([9.0, 8.0, 1.0, 2.0, 7.0])
    assert ranking(scores, group)[0] == [1, 0]  # nor_conv_3x3 before nor_conv_1x1
    assert ranking(scores, group)[1] == [0, 1]


def test_a_stable_ranking_ends_the_search():
    space, rule, memory = NasBench201(), StableRanking(epochs=3), {}
    one, other = torch.zeros(6, 5), torch.zeros(6, 5)
    other[4, 3] = 1.0
    stopped = []
    for matrix in (one, other, other, one, one, one):
        memory = rule.update(memory, space.discretize({"cell": matrix}), {"cell": matrix}, space.groups)
        stopped.append(rule.stops(memory))
    assert stopped == [False] * 5 + [True]


@pytest.mark.parametrize("when", [{}, {"every_n_train_steps": 1}])
def test_stopped_search_does_not_continue_when_resumed(cell_space, supernet, data, trainer, tmp_path, when):
    """From a checkpoint of the epoch's end, and from one of its last step, before its end."""

    def search():
        found = OneShot(cell_space, supernet(cell_space), early_stop=SkipLimit(2), arch_lr=1e-9)
        with torch.no_grad():
            found.arch["cell"][:, cell_space.group.column("skip_connect")] = 3.0
        return found

    first = search()
    fit = trainer(5, ModelCheckpoint(tmp_path, "last", **when), enable_checkpointing=True)
    fit.fit(first, data())
    assert fit.current_epoch == 1
    assert fit.global_step == 4
    again = search()
    resumed = trainer(5, ModelCheckpoint(tmp_path, "last", **when), enable_checkpointing=True)
    resumed.fit(again, data(), ckpt_path=tmp_path / "last.ckpt")
    assert resumed.global_step == 4
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


def test_a_search_below_the_limit_runs_to_its_end(cell_space, supernet, data, trainer):
    found = OneShot(cell_space, supernet(cell_space), early_stop=SkipLimit(6), arch_lr=1e-9)
    with torch.no_grad():
        found.arch["cell"][:, cell_space.group.column("nor_conv_3x3")] = 3.0
    fit = trainer(2)
    fit.fit(found, data())
    assert fit.global_step == 8
