"""RandAugment of a batch against torchvision's, one image after the other."""

import pytest
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import RandAugment

from nas_lightning.data import Digits
from nas_lightning.data.augment import Augment, _operations, rand_augment
from nas_lightning.errors import InputError
from nas_lightning.utils.randomness import generator

THEIRS = {
    **{"identity": "Identity", "shear_x": "ShearX", "shear_y": "ShearY", "translate_x": "TranslateX"},
    **{"translate_y": "TranslateY", "rotate": "Rotate", "brightness": "Brightness", "color": "Color"},
    **{"contrast": "Contrast", "sharpness": "Sharpness", "posterize": "Posterize", "solarize": "Solarize"},
    **{"autocontrast": "AutoContrast", "equalize": "Equalize"},
}


def images(count=4):
    return torch.randint(0, 256, (count, 3, 12, 16), dtype=torch.uint8, generator=generator(1))


@pytest.mark.parametrize("magnitude", [0, 9, 30])
@pytest.mark.parametrize(("number", "name"), list(enumerate(_operations())))
def test_each_operation_is_torchvisions(number, name, magnitude):
    reference, x = RandAugment(num_magnitude_bins=31), images()
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


def test_samples_go_their_own_ways_through_both_rounds():
    x = images(64)
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
