"""Augmentation of batches against plain loops, RandAugment against torchvision's."""

import pytest
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import RandAugment

from nas_lightning.data import Digits
from nas_lightning.data.augment import (
    Augment,
    _operations,
    crop_and_mirror,
    erase,
    normalize,
    rand_augment,
    statistics,
)
from nas_lightning.errors import InputError
from nas_lightning.utils.randomness import generator

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.1)


def images(batch=13, height=6, width=9):
    return torch.randint(0, 256, (batch, 3, height, width), dtype=torch.uint8, generator=generator(1))


def test_crop_and_mirror_against_plain_slices():
    for padding in [0, 1, 4]:
        x = images()
        offsets = torch.randint(0, 2 * padding + 1, (13, 2), generator=generator(2))
        mirrored = torch.randint(0, 2, (13,), generator=generator(3))
        got = crop_and_mirror(x, offsets, mirrored, padding)
        for image, result, (top, left), flip in zip(x, got, offsets.tolist(), mirrored.tolist(), strict=True):
            canvas = torch.zeros(3, 6 + 2 * padding, 9 + 2 * padding, dtype=torch.uint8)
            canvas[:, padding : padding + 6, padding : padding + 9] = image
            expected = canvas[:, top : top + 6, left : left + 9]
            assert torch.equal(result, expected.flip(2) if flip else expected)


def test_erase_against_a_pixel_by_pixel_loop():
    for side in [1, 2, 3, 8, 20]:
        x = torch.randn(5, 2, 6, 9)
        centers = torch.stack([torch.randint(0, high, (5,), generator=generator(4)) for high in (6, 9)], 1)
        got = erase(x, centers, side)
        for n, (y, x_) in enumerate(centers.tolist()):
            for i in range(6):
                for j in range(9):
                    inside = (
                        y - side // 2 <= i < y - side // 2 + side
                        and x_ - side // 2 <= j < x_ - side // 2 + side
                    )
                    assert torch.equal(got[n, :, i, j], torch.zeros(2) if inside else x[n, :, i, j])


def test_normalize_is_the_formula():
    x = images()
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    assert torch.allclose(normalize(x, MEAN, STD), (x / 255 - mean) / std, atol=1e-5)


def test_normalization_by_statistics_gives_mean_0_and_std_1():
    x = images(100)
    std, mean = torch.std_mean(normalize(x, *statistics(x)).transpose(0, 1).flatten(1), dim=1)
    assert torch.allclose(mean, torch.zeros(3), atol=1e-4)
    assert torch.allclose(std, torch.ones(3), atol=1e-3)


def test_a_constant_channel_does_not_divide_by_zero():
    x = torch.zeros(4, 1, 3, 3, dtype=torch.uint8)
    assert torch.isfinite(normalize(x, *statistics(x))).all()


def test_erased_square_is_the_mean():
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


THEIRS = {
    **{"identity": "Identity", "shear_x": "ShearX", "shear_y": "ShearY", "translate_x": "TranslateX"},
    **{"translate_y": "TranslateY", "rotate": "Rotate", "brightness": "Brightness", "color": "Color"},
    **{"contrast": "Contrast", "sharpness": "Sharpness", "posterize": "Posterize", "solarize": "Solarize"},
    **{"autocontrast": "AutoContrast", "equalize": "Equalize"},
}


def color_images(count=4):
    return torch.randint(0, 256, (count, 3, 12, 16), dtype=torch.uint8, generator=generator(1))


def test_each_operation_is_torchvisions():
    for magnitude in [0, 9, 30]:
        for number, name in list(enumerate(_operations())):
            reference, x = RandAugment(num_magnitude_bins=31), color_images()
            sizes, signed = reference._AUGMENTATION_SPACE[THEIRS[name]]
            strengths = sizes(31, 12, 16)
            for sign in (0, 1):
                strength = 0.0 if strengths is None else float(strengths[magnitude])
                strength *= 2 * sign - 1 if signed else 1
                expected = [
                    reference._apply_image_or_video_transform(
                        image, THEIRS[name], strength, InterpolationMode.NEAREST, {}
                    )
                    for image in x
                ]
                found = rand_augment(x, torch.tensor([[number, sign]]).expand(len(x), 2), magnitude)
                torch.testing.assert_close(found, torch.stack(expected), atol=1, rtol=0)


def test_rand_augment_of_a_batch_equals_that_of_samples():
    x = color_images(64)
    drawn = Augment(rand_augment=9).parameters(64, 12, 16, generator(2))[:, 5:]
    together = rand_augment(x, drawn, 9)
    alone = [rand_augment(image[None], row[None], 9)[0] for image, row in zip(x, drawn, strict=True)]
    assert torch.equal(together, torch.stack(alone))
    assert set(drawn[:, 0].tolist()) == set(range(14))


def test_a_data_set_takes_it_and_the_other_draws_stay():
    plain, strong = (Digits(batch_size=8, rand_augment=m).train_dataloader() for m in (0, 9))
    (x, _), (y, _) = next(iter(plain)), next(iter(strong))
    assert x.shape == y.shape
    assert not torch.equal(x, y)
    first, second = (Augment(rand_augment=m).parameters(5, 6, 9, generator(0)) for m in (0, 9))
    assert torch.equal(first, second[:, :5])
    with pytest.raises(InputError, match="must be at most 30, got 31"):
        Digits(rand_augment=31)
