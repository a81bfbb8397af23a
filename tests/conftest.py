"""What every test has: one thread, fixed seeds, and warnings that fail."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from nas_lightning.errors import InputError

REPOSITORY = Path(__file__).parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", choices=("cuda", "mps"), help="run tests/gpu on this device of the machine")


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)  # two threads are slower beside anything else, and change the last bits
    torch.set_num_interop_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    pl.seed_everything(0, verbose=False)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Data sets and tables beside the repository, for tests that are heavier or need real data."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no data folder beside the repository: {folder}")
    return folder


@pytest.fixture(scope="session")
def refusal() -> Callable[..., str | None]:
    """`refusal(call, *args)`: the message of its `InputError`, None where it ran; anything else fails."""

    def run(call: Callable[..., Any], *args: Any) -> str | None:
        try:
            call(*args)
        except InputError as error:
            message = str(error)
        else:
            return None
        if len(message.splitlines()) != 1 or len(message) > 600:
            pytest.fail(f"not one short line that says what was expected: {message!r}")
        return message

    return run
