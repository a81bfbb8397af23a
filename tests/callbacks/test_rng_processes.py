"""Two processes keep two states of their generators, and each gets its own back."""

import pytest
import pytorch_lightning as pl
import torch

from nas_lightning.callbacks.checkpoints import _KEY


class Witness(pl.Callback):
    """Draws as many numbers as its process' rank says, and writes down the states that matter."""

    def __init__(self, folder):
        self.folder = folder

    def note(self, name, rank):
        torch.save(torch.get_rng_state(), self.folder / f"{name}{rank}")

    def on_fit_start(self, trainer, pl_module):
        self.note("start", trainer.global_rank)

    def on_train_epoch_end(self, trainer, pl_module):
        torch.rand(trainer.global_rank + 1)
        self.note("end", trainer.global_rank)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_each_process_goes_on_from_its_own_state(tmp_path, tiny, trainer):
    options = {"strategy": "ddp_fork", "devices": 2, "limit_val_batches": 0}
    trainer(tmp_path, 1, Witness(tmp_path), **options).fit(tiny())
    checkpoint = tmp_path / "checkpoints" / "last.ckpt"
    states = [state["torch"] for state in torch.load(checkpoint, weights_only=True)[_KEY]]
    assert len(states) == 2
    assert not torch.equal(*states)

    torch.manual_seed(5)
    trainer(tmp_path, 2, Witness(tmp_path), **options).fit(tiny(), ckpt_path=checkpoint)
    for rank, state in enumerate(states):
        assert torch.equal(torch.load(tmp_path / f"start{rank}"), state)
