"""Networks that ONNX Runtime computes, against the same in torch."""

import pytest

import nas_lightning
from nas_lightning.errors import InputError
from nas_lightning.spaces import NasBench201
from tests.models.fast_networks import assert_the_same_ensemble, assert_the_same_network
from tests.models.test_model_file import stored

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.mark.parametrize("with_normalization", [False, True])
def test_outputs_are_torchs(tmp_path, with_normalization):
    stored(tmp_path, NasBench201())
    assert_the_same_network(tmp_path, with_normalization, runtime="onnx")


def test_ensembles_of_them(tmp_path):
    assert_the_same_ensemble(tmp_path, runtime="onnx")


def test_unknown_runtimes_are_told(tmp_path):
    stored(tmp_path, NasBench201())
    with pytest.raises(InputError, match="did you mean 'onnx'"):
        nas_lightning.load(tmp_path, runtime="onx")
