"""Networks that ONNX Runtime computes, against the same in torch."""

import pytest
import torch

import nas_lightning
from nas_lightning.ensembles import Ensemble
from nas_lightning.errors import InputError
from nas_lightning.spaces import NasBench201
from tests.models.test_model_file import stored

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.mark.parametrize("with_normalisation", [False, True])
def test_outputs_are_torchs(tmp_path, with_normalisation):
    stored(tmp_path, NasBench201())
    network, other = (
        nas_lightning.load(tmp_path, with_normalisation=with_normalisation, runtime=runtime)
        for runtime in ("torch", "onnx")
    )
    for images in (1, 5):
        x = torch.rand(images, 3, 9, 9)
        for layout in (torch.contiguous_format, torch.channels_last):
            found = other(x.contiguous(memory_format=layout).requires_grad_())
            torch.testing.assert_close(found, network(x).detach(), rtol=1e-5, atol=1e-5)
            assert not found.requires_grad
    with pytest.raises(InputError, match=r"expected images of \(3, 9, 9\), got \(3, 8, 8\)"):
        other(torch.rand(1, 3, 8, 8))


def test_ensembles_of_them(tmp_path):
    for seed, name in enumerate(("one", "two")):
        (tmp_path / name).mkdir()
        stored(tmp_path / name, NasBench201(), seed=seed)
    runs = [tmp_path / "one", tmp_path / "two"]
    plain, other = (Ensemble.of_runs(runs, runtime=runtime) for runtime in ("torch", "onnx"))
    x = torch.rand(3, 3, 9, 9)
    torch.testing.assert_close(other(x), plain(x).detach(), rtol=1e-5, atol=1e-5)


def test_unknown_runtimes_are_told(tmp_path):
    stored(tmp_path, NasBench201())
    with pytest.raises(InputError, match="did you mean 'onnx'"):
        nas_lightning.load(tmp_path, runtime="onx")
