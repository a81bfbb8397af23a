"""Mixed images and their targets, against the areas that they show."""

import torch
from torch.nn import functional as F

from nas_lightning.training.retrain import build_mixing

CLASSES = 7


def test_an_image_with_a_part_of_another_counts_by_its_area():
    x, y = torch.zeros(4, 3, 20, 20), torch.arange(4)
    x[2:] = 1
    mixed, target = build_mixing(0.0, 1.0, CLASSES)(x, y)
    share = 1 - mixed[0].mean()  # of the first image, which is black; its partner is white
    assert 0 < share < 1
    torch.testing.assert_close(
        target[0], share * F.one_hot(y[0], CLASSES) + (1 - share) * F.one_hot(y[3], CLASSES)
    )
    assert torch.equal(x[:2], torch.zeros(2, 3, 20, 20))  # the loader's batch is as it was
