"""The device of these tests: a pretended GPU, or with `pytest --device=cuda` (or `mps`) a real one."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.gpu.pretended import Log, pretended_gpu

LIGHTNING_SAYS = (
    "ignore:.*LeafSpec.*:FutureWarning",
    "ignore:`LightningModule.configure_optimizers` returned `None`",
    "ignore:.*does not have many workers",
    "ignore:GPU available but not used",
)
PRESENT = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for message in LIGHTNING_SAYS:
                item.add_marker(pytest.mark.filterwarnings(message))


@pytest.fixture
def on_gpu(request: pytest.FixtureRequest) -> Callable[..., contextlib.AbstractContextManager[Log | None]]:
    """Return a context with a GPU, which yields the log of a pretended one, None of a real one."""
    real = request.config.getoption("device")

    @contextlib.contextmanager
    def use(kind: str, devices: int = 1) -> Iterator[Log | None]:
        if real is None:
            with pretended_gpu(kind, devices) as log:
                yield log
        elif real != kind or not PRESENT[kind]():
            pytest.skip(f"no {kind} device" if real == kind else f"a test of {kind}")
        else:
            yield None

    return use
