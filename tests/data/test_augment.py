"""Whole batches at once against one image after the other in plain loops."""

import pytest
import torch

from nas_lightning.data.augment import Augment, crop_and_mirror, erase, normalize, statistics
from nas_lightning.utils.randomness import generator

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.1)


def images(batch=13, height=6, width=9):
    return torch.randint(0, 256, (batch, 3, height, width), dtype=torch.uint8, generator=generator(1))


@pytest.mark.parametrize("padding", [0, 1, 4])
def test_crop_and_mirror_against_plain_slices(padding):
    x = images()
    offsets = torch.randint(0, 2 * padding + 1, (13, 2), generator=generator(2))
    mirrored = torch.randint(0, 2, (13,), generator=generator(3))
    got = crop_and_mirror(x, offsets, mirrored, padding)
    for image, result, (top, left), flip in zip(x, got, offsets.tolist(), mirrored.tolist(), strict=True):
        canvas = torch.zeros(3, 6 + 2 * padding, 9 + 2 * padding, dtype=torch.uint8)
        canvas[:, padding : padding + 6, padding : padding + 9] = image
        expected = canvas[:, top : top + 6, left : left + 9]
        assert torch.equal(result, expected.flip(2) if flip else expected)


@pytest.mark.parametrize("side", [1, 2, 3, 8, 20])
def test_erase_against_a_pixel_by_pixel_loop(side):
    x = torch.randn(5, 2, 6, 9)
    centers = torch.stack([torch.randint(0, high, (5,), generator=generator(4)) for high in (6, 9)], 1)
    got = erase(x, centers, side)
    for n, (y, x_) in enumerate(centers.tolist()):
        for i in range(6):
            for j in range(9):
                inside = (
                    y - side // 2 <= i < y - side // 2 + side and x_ - side // 2 <= j < x_ - side // 2 + side
                )
                assert torch.equal(got[n, :, i, j], torch.zeros(2) if inside else x[n, :, i, j])


def test_normalize_is_the_formula():
    x = images()
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    assert torch.allclose(normalize(x, MEAN, STD), (x / 255 - mean) / std, atol=1e-5)


def test_normalized_by_its_own_statistics_a_set_has_mean_0_and_deviation_1():
    x = images(100)
    std, mean = torch.std_mean(normalize(x, *statistics(x)).transpose(0, 1).flatten(1), dim=1)
    assert torch.allclose(mean, torch.zeros(3), atol=1e-4)
    assert torch.allclose(std, torch.ones(3), atol=1e-3)


def test_a_constant_channel_does_not_divide_by_zero():
    x = torch.zeros(4, 1, 3, 3, dtype=torch.uint8)
    assert torch.isfinite(normalize(x, *statistics(x))).all()


def test_the_erased_square_is_the_mean_whatever_the_image():
    augment = Augment(cutout=2)
    x = images(4, 8, 8)
    parameters = augment.parameters(4, 8, 8, generator(0))
    parameters[:, 3:] = 4
    out = augment(x, parameters, MEAN, STD)
    assert not out[:, :, 3:5, 3:5].any()
    assert torch.equal(out[:, :, 5:], normalize(x, MEAN, STD)[:, :, 5:])


def test_parameters_cover_their_ranges_and_differ_between_samples():
    drawn = Augment(crop_padding=2, flip=True, cutout=3).parameters(2000, 6, 9, generator(0))
    for column, high in enumerate([5, 5, 2, 6, 9]):
        assert drawn[:, column].unique().tolist() == list(range(high))


def test_nothing_asked_for_is_normalization_alone():
    x = images()
    augment = Augment()
    assert torch.equal(
        augment(x, augment.parameters(13, 6, 9, generator(0)), MEAN, STD), normalize(x, MEAN, STD)
    )
