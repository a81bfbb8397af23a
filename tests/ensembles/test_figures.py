"""What the pictures of an ensemble show is what its predictions come to."""

import pytest
import torch
from torch import nn

from nas_lightning.models import Ensemble
from nas_lightning.models.evaluation import PASSES, Evaluation, agreement, errors, prediction_map
from nas_lightning.spaces import NasBench201

# Two members, four images of class 0: both are right, one is and wins, one is and loses, none is
PROBABILITIES = torch.tensor(
    [[[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.2, 0.8]], [[0.8, 0.2], [0.4, 0.6], [0.1, 0.9], [0.3, 0.7]]]
)
EVALUATION = Evaluation(PROBABILITIES, torch.zeros(4, dtype=torch.long))


def test_bars_count_images_by_how_many_members_are_right():
    bars = [bar.get_height() for bar in agreement(EVALUATION).axes[0].patches]
    assert bars == [0, 1, 1, 1, 1, 0]  # where the ensemble is right, for 0, 1, 2 members; where it is wrong


def test_errors_of_members_and_ensemble():
    axes = errors(EVALUATION).axes[0]
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([25, 75])
    assert [line.get_ydata()[0] for line in axes.lines] == pytest.approx([50, 50])


def test_the_map_has_a_point_for_every_pass_and_leaves_the_members_as_they_were(generator):
    space = NasBench201()
    cells = [space.parse(f"|nor_conv_3x3~0|+|{op}~0|none~1|+|none~0|none~1|skip_connect~2|") for op in OPS]
    members = [space.network(c, in_channels=1, num_classes=3, channels=4, cells=1) for c in cells]
    ensemble = Ensemble(members).eval()
    batches = [(torch.randn(6, 1, 8, 8), torch.zeros(6, dtype=torch.long)) for _ in range(2)]
    before = ensemble.predict_proba(batches[0][0])
    axes = prediction_map(ensemble, batches, images=10).axes[0]
    assert [len(line.get_xdata()) for line in axes.lines] == [PASSES, 1, PASSES, 1]
    assert torch.equal(ensemble.predict_proba(batches[0][0]), before)


OPS = ("nor_conv_3x3", "nor_conv_1x1")


def test_there_is_no_map_without_drop_path():
    members = [nn.Sequential(nn.Flatten(), nn.Linear(4, 2)) for _ in range(3)]
    batches = [(torch.randn(5, 1, 2, 2), torch.zeros(5, dtype=torch.long))]
    assert prediction_map(Ensemble(members), batches) is None
