"""The kernel's monitor beside trainings that nobody foresaw: they are what they are without it."""

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from nas_lightning.callbacks import NTKMonitor

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:Trying to infer the `batch_size`"),
    pytest.mark.filterwarnings("ignore:.*returned `None`, this fit will run with no optimizer"),
]
X, Y = torch.randn(16, 3, 6, 6, generator=torch.Generator().manual_seed(0)), torch.arange(16) % 5


class Usual(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(64, 5)
        )

    def forward(self, x: Tensor):
        return self.net(x)

    def training_step(self, batch, batch_idx: int):
        return F.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Adversaries(Usual):
    """Two networks, two optimizers, by hand; forward makes images of noise."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.maker, self.judge = nn.Linear(4, 108), nn.Linear(108, 1)

    def forward(self, z: Tensor) -> Tensor:
        return self.maker(z)

    def training_step(self, batch, batch_idx: int) -> None:
        made, real = self(torch.randn(len(batch[0]), 4)), batch[0].flatten(1)
        losses = -self.judge(made).mean(), self.judge(made.detach()).mean() - self.judge(real).mean()
        for optimizer, loss in zip(self.optimizers(), losses, strict=True):
            self.toggle_optimizer(optimizer)
            optimizer.zero_grad()
            self.manual_backward(loss, retain_graph=True)
            optimizer.step()
            self.untoggle_optimizer(optimizer)

    def configure_optimizers(self):
        return [torch.optim.SGD(part.parameters(), lr=0.01) for part in (self.maker, self.judge)], []


class ByHand(Usual):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx: int) -> None:
        self.optimizers().zero_grad()
        self.manual_backward(super().training_step(batch, batch_idx))
        self.optimizers().step()


class Named(Usual):
    def forward(self, x: Tensor):
        return {"hidden": x, "logits": self.net(x)}

    def training_step(self, batch, batch_idx: int):
        return {"loss": F.cross_entropy(self(batch["image"])["logits"], batch["label"])}


class Several(Usual):
    def forward(self, x: Tensor):
        self.log("asked", 1.0)
        return self.net(x), x

    def training_step(self, batch, batch_idx: int):
        return F.cross_entropy(self(batch[0])[0], batch[1])


class OfLoss(Usual):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.net(x), y)

    def training_step(self, batch, batch_idx: int) -> Tensor:
        return self(*batch)


class ListOfDicts(Usual):
    def training_step(self, batch, batch_idx: int):
        x, y = (torch.stack([sample[name] for sample in batch]) for name in ("image", "label"))
        return F.cross_entropy(self(x), y)


class Alone(Usual):
    """Images without labels."""

    def training_step(self, batch, batch_idx: int):
        return self(batch).square().mean()


class Numbers(Usual):
    def training_step(self, batch, batch_idx: int):
        return F.mse_loss(self(batch[0])[:, 0], batch[1])


class Trainable(Usual):
    def forward(self, x: Tensor):
        assert self.training, "this one only trains"
        return self.net(x)


class Nothing(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx: int) -> None:
        pass

    def configure_optimizers(self) -> None:
        return None


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(X, Y, strict=True))


class Made(Dataset):
    def __init__(self, form) -> None:
        self.form = form

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int):
        return self.form(index)


def named(index: int) -> dict[str, Tensor]:
    return {"image": X[index], "label": Y[index]}


PAIRS = TensorDataset(X, Y)
MEASURED = {
    "by hand": (ByHand, PAIRS, {}),
    "names": (Named, Made(named), {}),
    "a tuple, and a log": (Several, PAIRS, {}),
    "a stream": (Usual, Stream(), {}),
    "two bytes": (Usual, PAIRS, {"precision": "bf16-true"}),
    "mixed precision": (Usual, PAIRS, {"precision": "bf16-mixed"}),
    "accumulated": (Usual, PAIRS, {"accumulate_grad_batches": 2, "gradient_clip_val": 1.0}),
}
NOT_MEASURED = {
    "adversaries": (Adversaries, PAIRS, "attribute=… says what is measured"),
    "a loss": (OfLoss, PAIRS, "expected a network of images alone, forward(x)"),
    "a list of dicts": (ListOfDicts, Made(named), "expected batches of (inputs, labels)"),
    "images alone": (Alone, Made(lambda index: X[index]), "expected batches of (inputs, labels)"),
    "numbers": (Numbers, Made(lambda index: (X[index], X[index].mean())), "expected class labels"),
    "training alone": (Trainable, PAIRS, "this one only trains"),
    "nothing to train": (Nothing, PAIRS, "parameters to train"),
}


def train(kind, samples, callbacks=(), **options) -> tuple[pl.LightningModule, pl.Trainer]:
    pl.seed_everything(0, verbose=False)
    module = kind()
    off = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", callbacks=list(callbacks), **dict.fromkeys(off, False), **options
    )
    shuffle = None if isinstance(samples, IterableDataset) else True
    collate = list if kind is ListOfDicts else None
    trainer.fit(module, DataLoader(samples, batch_size=8, shuffle=shuffle, collate_fn=collate))
    return module, trainer


def same_training(kind, samples, monitor, **options) -> pl.Trainer:
    plain, _ = train(kind, samples, **options)
    random = torch.get_rng_state()
    watched, trainer = train(kind, samples, [monitor], **options)
    assert torch.equal(random, torch.get_rng_state())
    assert trainer.current_epoch == 2
    for name, value in plain.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name
    return trainer


@pytest.mark.parametrize("name", MEASURED)
def test_a_kernel_of_any_module(name):
    kind, samples, options = MEASURED[name]
    trainer = same_training(kind, samples, NTKMonitor(batch_size=6), **options)
    assert float(trainer.callback_metrics["ntk_trace"]) > 0


@pytest.mark.parametrize("name", NOT_MEASURED)
def test_what_has_none_trains_to_its_end_and_is_told_once(name):
    kind, samples, reason = NOT_MEASURED[name]
    with pytest.warns(UserWarning, match="NTKMonitor measures nothing") as caught:
        trainer = same_training(kind, samples, NTKMonitor(batch_size=6))
    said = [str(warning.message) for warning in caught if "NTKMonitor" in str(warning.message)]
    assert len(said) == 1
    assert reason in said[0]
    assert "ntk_trace" not in trainer.callback_metrics


@pytest.mark.parametrize(
    ("name", "monitor"),
    [
        ("adversaries", NTKMonitor(attribute="judge", inputs=lambda b: (b[0].flatten(1), 0 * b[1]))),
        (
            "a list of dicts",
            NTKMonitor(
                inputs=lambda b: tuple(torch.stack(z) for z in zip(*map(dict.values, b), strict=True))
            ),
        ),
        ("numbers", NTKMonitor(output="sum")),
        ("training alone", NTKMonitor(attribute="net")),
    ],
)
def test_the_advice_helps(name, monitor):
    kind, samples, _ = NOT_MEASURED[name]
    assert float(same_training(kind, samples, monitor).callback_metrics["ntk_trace"]) > 0
