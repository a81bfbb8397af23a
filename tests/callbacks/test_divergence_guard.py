"""What diverges ends with one line, and the last checkpoint is finite."""

import pytest
import pytorch_lightning as pl
import torch

from nas_lightning.callbacks import DivergenceGuard
from nas_lightning.callbacks.checkpoints import StepCheckpoint
from nas_lightning.errors import InputError


class Poison(pl.Callback):
    """Makes one weight infinite before a step."""

    def __init__(self, step, value):
        self.step, self.value = step, value

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == self.step:
            with torch.no_grad():
                pl_module.network[0].weight[3, 1] = self.value


def last_checkpoint(folder):
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_checkpoint_of_infinite_weights(tmp_path, tiny, trainer, value):
    """The 14th step is in the third epoch: the checkpoint of the second stays."""
    run = trainer(tmp_path, 4, DivergenceGuard(monitor="train_accuracy"), Poison(13, value))
    with pytest.raises(InputError, match=r"^expected finite weights: lower the learning rate.*epoch 2, step"):
        run.fit(tiny())
    kept = last_checkpoint(tmp_path)
    assert kept["epoch"] == 1
    assert all(bool(weights.isfinite().all()) for weights in kept["state_dict"].values())


def test_within_an_epoch_too(tmp_path, tiny, trainer):
    steps = StepCheckpoint(tmp_path / "checkpoints" / "last.ckpt", 1)
    run = trainer(tmp_path, 2, DivergenceGuard(), Poison(3, float("nan")), steps)
    with pytest.raises(InputError, match="epoch 0, step 4"):
        run.fit(tiny())
    assert last_checkpoint(tmp_path)["global_step"] == 3


def test_a_loss_that_is_not_finite(tmp_path, tiny, trainer):
    class Exploding(pl.Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            pl_module.log("train_loss", torch.tensor(float("inf")))

    with pytest.raises(InputError, match=r"expected a finite train_loss: .* got inf"):
        trainer(tmp_path, 2, Exploding(), DivergenceGuard()).fit(tiny())


def test_what_is_finite_goes_on(tmp_path, tiny, trainer):
    trainer(tmp_path, 2, DivergenceGuard()).fit(tiny())
    assert last_checkpoint(tmp_path)["epoch"] == 1
