"""What every faster form of a stored network owes to the network itself."""

import pytest
import torch

import nas_lightning
from nas_lightning.errors import InputError
from nas_lightning.models import Ensemble
from nas_lightning.spaces import NasBench201
from tests.models.test_model_file import stored


def assert_the_same_network(run, with_normalization, **loading):
    """Outputs to 1e-5 in both layouts and for any number of images, without a gradient; one size of image."""
    plain, other = (
        nas_lightning.load(run, with_normalization=with_normalization, **how) for how in ({}, loading)
    )
    for images in (1, 2, 5):
        x = torch.rand(images, 3, 9, 9)
        for layout in (torch.contiguous_format, torch.channels_last):
            found = other(x.contiguous(memory_format=layout).requires_grad_())
            torch.testing.assert_close(found, plain(x).detach(), rtol=1e-5, atol=1e-5)
            assert not found.requires_grad
    with pytest.raises(InputError, match=r"expected images of \(3, 9, 9\), got \(3, 8, 8\)"):
        other(torch.rand(1, 3, 8, 8))


def assert_the_same_ensemble(folder, **loading):
    """The mean of two stored networks that are loaded so is the mean of the two."""
    runs = [folder / "one", folder / "two"]
    for seed, run in enumerate(runs):
        run.mkdir()
        stored(run, NasBench201(), seed=seed)
    plain, other = Ensemble.of_runs(runs), Ensemble.of_runs(runs, **loading)
    x = torch.rand(3, 3, 9, 9)
    torch.testing.assert_close(other(x), plain(x).detach(), rtol=1e-5, atol=1e-5)
