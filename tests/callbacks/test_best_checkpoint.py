"""The best epoch by validation, and nothing at all without one."""

import pytest
import torch

from nas_lightning.callbacks import BestCheckpoint


def best(folder):
    return BestCheckpoint(
        folder,
        "best",
        monitor="val_accuracy",
        mode="max",
        enable_version_counter=False,
        save_on_train_epoch_end=True,
    )


def test_keeps_the_best_epoch(tmp_path, tiny, trainer):
    module = tiny()
    accuracies = [0.3, 0.6, 0.5]
    module.validation_step = lambda batch, batch_idx: module.log(
        "val_accuracy", accuracies[module.current_epoch]
    )
    callback = best(tmp_path / "kept")
    trainer(tmp_path, 3, callback).fit(module)
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["best.ckpt"]
    assert torch.load(tmp_path / "kept" / "best.ckpt", weights_only=True)["epoch"] == 1
    assert float(callback.best_model_score) == pytest.approx(0.6)


def test_silent_without_validation(tmp_path, tiny, trainer):
    trainer(tmp_path, 2, best(tmp_path / "kept"), limit_val_batches=0).fit(tiny())
    assert not (tmp_path / "kept").exists() or not list((tmp_path / "kept").iterdir())
