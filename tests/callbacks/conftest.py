"""A search small enough to run in a blink, with everything that a resumed run could get wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from nas_lightning.callbacks import DataLoaderState, GenotypeHistory, RewindMetrics, RNGState
from nas_lightning.data.loaders import EpochLoader
from nas_lightning.runs.metrics_csv import MetricsCSV
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import Strategy

LIGHTNING_SAYS = (
    "ignore:.*LeafSpec.*:FutureWarning",
    "ignore:The '.*_dataloader' does not have many workers",
    "ignore:Checkpoint directory .* exists and is not empty",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for message in LIGHTNING_SAYS:
                item.add_marker(pytest.mark.filterwarnings(message))


class TinySearch(Strategy):
    """Dropout, a shuffled loader, momentum, and architecture weights that move with the loss."""

    def __init__(self) -> None:
        super().__init__(NasBench201())
        self.arch = nn.Parameter(torch.zeros(self.space.groups["cell"].shape))
        self.network = nn.Sequential(nn.Linear(5, 30), nn.Dropout(0.4), nn.ReLU(), nn.Linear(30, 5))

    def scores(self):
        return {"cell": self.arch.softmax(-1)}

    def derive(self):
        return [self.space.discretize(self.scores())]

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self.network(x) + self.arch.sum(0)
        loss = F.cross_entropy(logits, y) + (self.arch * torch.randn_like(self.arch)).sum()
        accuracy = (logits.argmax(1) == y).float().mean()
        self.log_dict(
            {"train_loss": loss, "train_accuracy": accuracy}, on_step=False, on_epoch=True, sync_dist=True
        )
        self.log("loss", loss, on_step=True, on_epoch=False)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("valid_loss", F.cross_entropy(self.network(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

    def train_dataloader(self):
        draw = torch.Generator().manual_seed(3)
        data = TensorDataset(torch.randn(48, 5, generator=draw), torch.randint(5, (48,), generator=draw))
        return DataLoader(data, batch_size=8, shuffle=True)

    def val_dataloader(self):
        return DataLoader(TensorDataset(torch.ones(8, 5), torch.arange(8) % 5), batch_size=8)


@pytest.fixture
def tiny() -> Callable[[], TinySearch]:
    """A new one, from the same start."""

    def make() -> TinySearch:
        torch.manual_seed(7)
        return TinySearch()

    return make


@pytest.fixture
def trainer() -> Callable[..., pl.Trainer]:
    """`trainer(folder, epochs, *callbacks)`: a trainer as the scripts make it, quiet."""

    def make(folder: Path, epochs: int, *callbacks: pl.Callback, **options) -> pl.Trainer:
        checkpoint = ModelCheckpoint(folder / "checkpoints", "last", enable_version_counter=False)
        options = {
            "logger": MetricsCSV(folder),
            "log_every_n_steps": 2,
            "num_sanity_val_steps": 0,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "accelerator": "cpu",
            "default_root_dir": folder,
        } | options
        resuming = [RNGState(), DataLoaderState(), RewindMetrics()]
        always = [*resuming, GenotypeHistory(folder, figures=False), checkpoint]
        return pl.Trainer(max_epochs=epochs, callbacks=[*always, *callbacks], **options)

    return make


class Noise:
    """Batches of any epoch, by their number."""

    def __len__(self) -> int:
        return 6

    def batches(self, epoch: int, start: int, count: int):
        for number in range(start, start + count):
            draw = torch.Generator().manual_seed(100 * epoch + number)
            yield torch.randn(8, 5, generator=draw), torch.randint(5, (8,), generator=draw)


class Impatient(TinySearch):
    """Asks for the length of the run before the loops have their state, as many people's modules do.

    It logs steps: means over an epoch that Lightning takes are not part of a checkpoint within one.
    """

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.network(x) + self.arch.sum(0), y)
        self.log_dict({"loss": loss, "norm": self.arch.norm()}, on_step=True, on_epoch=False)
        return loss

    def configure_optimizers(self):
        steps = self.trainer.estimated_stepping_batches
        return torch.optim.SGD(self.parameters(), lr=1 / steps, momentum=0.9)

    def train_dataloader(self):
        return EpochLoader(Noise())


@pytest.fixture
def impatient() -> Callable[[], Impatient]:
    def make() -> Impatient:
        torch.manual_seed(7)
        return Impatient()

    return make
