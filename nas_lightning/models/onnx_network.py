"""A network that ONNX Runtime computes, in place of the one that it was exported from."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from torch import Tensor, nn

from nas_lightning.errors import InputError
from nas_lightning.models.export_formats import Image, read_onnx
from nas_lightning.models.exporter import export


class OnnxNetwork(nn.Module):
    """Maps images to logits as the network does, within 1e-5, on the CPU and without gradients.

    Args:
        network: maps (b, c, h, w) to (b, classes).
        image: (channels, height, width), the size that it takes from now on, any number at a time.

    >>> import torch
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(12, 2)).eval()
    >>> OnnxNetwork(network, (3, 2, 2))(torch.zeros(5, 3, 2, 2)).shape
    torch.Size([5, 2])
    """

    def __init__(self, network: nn.Module, image: Image) -> None:
        super().__init__()
        self.image = image
        with TemporaryDirectory() as folder:
            self.run = read_onnx(export(network, Path(folder) / "network.onnx", image).path)

    def forward(self, x: Tensor) -> Tensor:  # (b, c, h, w) → (b, classes)
        if x.shape[1:] != self.image:
            raise InputError(f"expected images of {self.image}", got=tuple(x.shape[1:]))
        return self.run(x.detach().float().cpu())
