"""A network whose weights are constants of its graph: norms are folded into convolutions, Python is gone."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from nas_lightning.errors import InputError
from nas_lightning.metrics.passes.outputs import logits_of

_CLOSE = 1e-5
_CHECKED = (1, 3)  # batches that are compared


class FrozenNetwork(nn.Module):
    """Maps images to logits as the network does, within 1e-5, on the CPU and without gradients.

    Args:
        network: maps (b, c, h, w) to (b, classes), in eval mode.
        image: (channels, height, width), the size that it takes from now on, any number at a time.

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(12, 2)).eval()
    >>> FrozenNetwork(network, (3, 2, 2))(torch.zeros(5, 3, 2, 2)).shape
    torch.Size([5, 2])
    """

    def __init__(self, network: nn.Module, image: tuple[int, int, int]) -> None:
        super().__init__()
        self.image = image
        self.run = _freeze(network, image)
        random = torch.Generator().manual_seed(0)
        for images in _CHECKED:
            _check(network, self.run, torch.randn(images, *image, generator=random))

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:  # (b, c, h, w) → (b, classes)
        if x.shape[1:] != self.image:
            raise InputError(f"expected images of {self.image}", got=tuple(x.shape[1:]))
        logits: Tensor = self.run(x.detach().float().cpu())
        return logits


class _Logits(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return logits_of(self.network(x))


@torch.no_grad()
def _freeze(network: nn.Module, image: tuple[int, int, int]) -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about what it would have people use on GPUs
        try:
            traced = torch.jit.trace(_Logits(network).eval(), torch.zeros(2, *image), check_trace=False)
            return torch.jit.freeze(traced)
        except Exception as error:  # a network of anybody's raises whatever it likes
            expected = f"expected a network that torch can freeze: {str(error).strip().splitlines()[0]}"
            raise InputError(expected, where="optimise") from None


@torch.no_grad()
def _check(network: nn.Module, frozen: torch.jit.ScriptModule, x: Tensor) -> None:
    expected, found = logits_of(network(x)), frozen(x)
    if expected.shape == found.shape:
        error = float((expected - found).abs().max() / expected.abs().max().clamp(min=1))
        if error <= _CLOSE:
            return
        raise InputError(f"expected the outputs of the network within {_CLOSE}", got=error, where="optimise")
    where, got = "optimise", tuple(found.shape)
    raise InputError(f"expected outputs of shape {tuple(expected.shape)}", got=got, where=where)
