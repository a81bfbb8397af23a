"""Small networks with every kind of layer, and the kernel by `torch.func`."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev
from torch.nn import functional as F

from nas_lightning.spaces import DartsSpace, NasBench201


@pytest.fixture(scope="session")
def jacobian() -> Callable[[nn.Module, Tensor], Tensor]:
    """`jacobian(network, x)`: ∂f/∂θ of the whole batch's forward pass, (m, classes, parameters)."""

    def compute(network: nn.Module, x: Tensor) -> Tensor:
        trained = {name: p.detach() for name, p in network.named_parameters() if p.requires_grad}
        blocks = jacrev(lambda parameters: functional_call(network, parameters, (x,)))(trained)
        return torch.cat([block.reshape(*block.shape[:2], -1) for block in blocks.values()], dim=2)

    return compute


@pytest.fixture(params=["nasbench201", "darts"])
def derived(request: pytest.FixtureRequest, generator: torch.Generator) -> nn.Module:
    """A network of a space, with running statistics, as users train it."""
    space, size = {
        "nasbench201": (NasBench201(), {"channels": 4, "cells": 1}),
        "darts": (DartsSpace(), {"channels": 4, "cells": 3, "auxiliary": True, "dropout": 0.5}),
    }[request.param]
    network = space.network(space.sample(generator), in_channels=3, num_classes=5, **size)
    return network.train()


@pytest.fixture
def images(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(6, 3, 8, 8, generator=generator), torch.tensor([0, 1, 2, 3, 4, 1])


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.norm(self.conv(x))).mean(dim=(2, 3)))


@pytest.fixture
def small() -> Small:
    return Small().double()


@pytest.fixture
def small_batch(images: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return images[0].double(), images[1]
