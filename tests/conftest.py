"""What every test has: one thread, fixed seeds, and warnings that fail."""

from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch

REPOSITORY = Path(__file__).parents[1]


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)  # two threads are slower beside anything else, and change the last bits
    torch.set_num_interop_threads(1)
    config.addinivalue_line("filterwarnings", "error")


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
