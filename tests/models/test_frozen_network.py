"""Networks that torch has folded and frozen, against the same as they were."""

import pytest
import torch
from torch import nn

import nas_lightning
from nas_lightning.errors import InputError
from nas_lightning.models.export import FrozenNetwork
from nas_lightning.spaces import DartsSpace, NasBench201
from tests.models.fast_networks import assert_the_same_ensemble, assert_the_same_network
from tests.models.test_model_file import stored


@pytest.mark.parametrize("space", [NasBench201, DartsSpace])
@pytest.mark.parametrize("with_normalization", [False, True])
def test_outputs_are_those_of_the_network(tmp_path, space, with_normalization):
    stored(tmp_path, space())
    assert_the_same_network(tmp_path, with_normalization, optimize=True)


def test_ensembles_and_predictions_take_them(tmp_path):
    assert_the_same_ensemble(tmp_path, optimize=True)


def test_one_that_runs_elsewhere_is_not_frozen_too(tmp_path):
    stored(tmp_path, NasBench201())
    with pytest.raises(InputError, match="expected runtime='torch', which optimize is for, got 'onnx'"):
        nas_lightning.load(tmp_path, runtime="onnx", optimize=True)


class ByTheBatch(nn.Module):
    """Decides by the number of images, which a trace does not see."""

    def forward(self, x):
        return x.flatten(1)[:, :2] * (1 if len(x) == 2 else 5)


class ByWords(nn.Module):
    def forward(self, x):
        return {"feature": "text"}


class Several(nn.Module):
    def forward(self, x):
        return {"logits": x.flatten(1)[:, :2], "aux": x}


@pytest.mark.parametrize(
    ("network", "message"),
    [(ByTheBatch(), "expected the outputs of the network within"), (ByWords(), "that torch can freeze")],
)
def test_what_cannot_be_frozen_is_one_line(network, message):
    with pytest.raises(InputError, match=message):
        FrozenNetwork(network, (3, 4, 4))


def test_outputs_of_several_parts_are_the_logits():
    x = torch.rand(4, 3, 4, 4)
    torch.testing.assert_close(FrozenNetwork(Several(), (3, 4, 4))(x), x.flatten(1)[:, :2])
