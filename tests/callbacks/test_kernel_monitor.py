"""The monitor logs the kernel, and the training does not notice."""

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from nas_lightning.callbacks import NTKMonitor
from nas_lightning.callbacks.monitors import first_pair
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.metrics import ntk
from nas_lightning.metrics.recording import initialize
from nas_lightning.spaces import NasBench201

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
]
SPACE = NasBench201()


@pytest.fixture
def images(generator):
    return torch.randn(6, 3, 8, 8, generator=generator), torch.tensor([0, 1, 2, 3, 4, 1])


class Training(pl.LightningModule):
    """A network with dropout and batch norm; its `derive` changes from epoch to epoch, as a search's."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 5)
        )
        self.seen: list[dict[str, float]] = []
        self.random = torch.empty(0)  # the state of the generator after the training

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)

    def training_step(self, batch: dict[str, tuple[Tensor, Tensor]], batch_idx: int) -> Tensor:
        x, y = batch["train"]
        return F.cross_entropy(self(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    def derive(self) -> list[Genotype]:
        return [SPACE.sample(torch.Generator().manual_seed(self.current_epoch + 1))]


class Recorder(pl.Callback):
    """Keeps what was logged at the end of each epoch."""

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        pl_module.seen.append({name: float(value) for name, value in trainer.callback_metrics.items()})


def build(genotype: Genotype) -> nn.Module:
    return SPACE.network(genotype, in_channels=3, num_classes=5, channels=4, cells=1)


def train(*callbacks: pl.Callback, epochs: int = 2) -> Training:
    pl.seed_everything(0, verbose=False)
    module = Training()
    images = TensorDataset(torch.randn(16, 3, 8, 8), torch.arange(16) % 5)
    trainer = pl.Trainer(
        max_epochs=epochs,
        callbacks=[*callbacks, Recorder()],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    trainer.fit(module, {"train": DataLoader(images, batch_size=8, shuffle=True)})
    module.random = torch.get_rng_state()
    return module


@pytest.mark.parametrize("how", [{}, {"attribute": "network"}, {"network": build}])
def test_training_is_the_same_with_and_without(how):
    plain, watched = train(), train(NTKMonitor(batch_size=6, **how))
    assert torch.equal(plain.random, watched.random)
    for name, value in plain.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name
    assert {"ntk_trace", "ntk_condition", "ntk_lambda_min", "ntk_seconds"} <= set(watched.seen[-1])


def test_the_values_are_the_kernels(images):
    monitor = NTKMonitor(batch=images)
    module = train(monitor)
    kernel = ntk(module, images)
    assert module.seen[-1]["ntk_trace"] == pytest.approx((kernel.trace / 6) ** 0.5)
    assert module.seen[-1]["ntk_condition"] == pytest.approx(kernel.condition)
    assert module.seen[-1]["ntk_lambda_min"] == pytest.approx(kernel.lambda_min)
    assert module.seen[0]["ntk_trace"] != module.seen[-1]["ntk_trace"]


def test_the_derived_network_is_the_current_one(images):
    monitor = NTKMonitor(batch=images, network=build)
    module = train(monitor)
    for epoch, seen in enumerate(module.seen):
        network = build(SPACE.sample(torch.Generator().manual_seed(epoch + 1)))
        initialize(network, "lecun", torch.Generator().manual_seed(0))
        kernel = ntk(network, images)
        assert seen["ntk_trace"] == pytest.approx((kernel.trace / 6) ** 0.5)


def test_only_every_few_epochs():
    monitor = NTKMonitor(every_n_epochs=2, batch_size=4)
    seen = train(monitor, epochs=3).seen
    assert "ntk_trace" not in seen[0]
    assert seen[1]["ntk_trace"] > 0
    assert monitor.batch is not None
    assert len(monitor.batch[0]) == 4


def test_the_batch_is_part_of_the_state(images):
    resumed = NTKMonitor()
    resumed.load_state_dict(NTKMonitor(batch=images).state_dict())
    assert resumed.batch is not None
    assert all(map(torch.equal, resumed.batch, images))
    assert NTKMonitor().state_dict() == {}


def test_batches_of_many_shapes(images):
    x, _ = images
    for batch in (images, list(images), {"train": images, "valid": None}, [images, images]):
        assert first_pair(batch)[0] is x
    with pytest.raises(InputError, match="batches of"):
        first_pair(x)


@pytest.mark.parametrize(
    "options",
    [{"every_n_epochs": 0}, {"batch_size": 1}, {"attribute": "network", "network": build}],
)
def test_wrong_options_are_refused(options):
    with pytest.raises(InputError):
        NTKMonitor(**options)


def test_mappings_with_the_usual_names(images):
    x, y = images
    for names in (("image", "label"), ("img", "target"), ("pixel_values", "labels"), ("x", "y")):
        assert first_pair({"id": 3, **dict(zip(names, images, strict=True))})[0] is x
    assert first_pair((x, y, torch.ones(6)))[1] is y


def test_a_batch_and_inputs_as_functions(images):
    given = train(NTKMonitor(batch=lambda: images)).seen[-1]
    assert given["ntk_trace"] == train(NTKMonitor(batch=images)).seen[-1]["ntk_trace"]
    monitor = NTKMonitor(inputs=lambda batch: (batch["train"][0] * 0 + 1, batch["train"][1]))
    train(monitor)
    assert bool((monitor.batch[0] == 1).all())


@pytest.mark.parametrize(
    ("monitor", "reason"),
    [
        (NTKMonitor(attribute="network.0"), "expected logits"),  # images come out
        (NTKMonitor(attribute="nowhere"), "no attribute 'nowhere'"),
        (NTKMonitor(batch=(torch.zeros(1, 3, 8, 8), torch.zeros(1, dtype=torch.long))), "two samples"),
        (NTKMonitor(inputs=lambda batch: batch["test"]), "test"),
    ],
)
def test_what_cannot_be_measured_ends_no_training(monitor, reason):
    """It is said once in two epochs, and what is trained is what is trained without it."""
    plain = train()
    with pytest.warns(UserWarning, match="NTKMonitor measures nothing in this run") as caught:
        watched = train(monitor)
    said = [str(warning.message) for warning in caught if "NTKMonitor" in str(warning.message)]
    assert len(said) == 1
    assert reason in said[0]
    assert "ntk_trace" not in watched.seen[-1]
    for name, value in plain.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name
