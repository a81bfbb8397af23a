"""The callbacks and loggers that the configurations name, composed and put to work."""

import pytest
import pytorch_lightning as pl
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from nas_lightning.options import config_folder
from nas_lightning.runs.metrics_csv import MetricsCSV


def parts(group, option, run, *overrides):
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        cfg = compose(f"{group}/{option}", [f"+run={run}", "+task.score=accuracy", *overrides])
    return {name: instantiate(part) for name, part in (cfg.get(group) or {}).items() if part is not None}


def fit(callbacks, loggers, module, epochs=2):
    trainer = pl.Trainer(
        max_epochs=epochs,
        callbacks=list(callbacks.values()),
        logger=list(loggers.values()),
        accelerator="cpu",
        enable_model_summary=False,
        num_sanity_val_steps=0,
        log_every_n_steps=2,
    )
    trainer.fit(module)
    return trainer


def test_a_search_leaves_what_it_promises(tmp_path, tiny, capsys):
    fit(parts("callbacks", "search", tmp_path), parts("logger", "csv", tmp_path), tiny())
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    figures = {
        f"figures/{name}.{suffix}"
        for name in ("genotype", "weights_cell")
        for suffix in ("pdf", "png", "svg")
    }
    assert left == {"metrics.csv", "history.jsonl", "checkpoints/last.ckpt", *figures}
    assert capsys.readouterr().out.count("epoch ") == 2


def test_training_keeps_the_best_epoch_where_there_is_validation(tmp_path, tiny):
    module = tiny()
    module.validation_step = lambda batch, batch_idx: module.log("valid_accuracy", 0.5)
    fit(parts("callbacks", "train", tmp_path), {}, module)
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}


@pytest.mark.parametrize("name", ["history", "collapse", "checkpoint", "progress"])
def test_each_callback_can_be_left_out(tmp_path, name):
    assert name in parts("callbacks", "search", tmp_path)
    assert name not in parts("callbacks", "search", tmp_path, f"callbacks.{name}=null")


def test_loggers(tmp_path, monkeypatch):
    (only,) = parts("logger", "csv", tmp_path).values()
    assert isinstance(only, MetricsCSV)
    assert only.path == tmp_path / "metrics.csv"
    assert parts("logger", "none", tmp_path) == {}
    board = parts("logger", "tensorboard", tmp_path)
    assert set(board) == {"csv", "tensorboard"}
    board["tensorboard"].log_metrics({"loss": 1.0}, 0)
    board["tensorboard"].finalize("success")
    assert list(tmp_path.glob("tensorboard/events*"))


def test_weights_and_biases(tmp_path, monkeypatch, tiny, capfd):
    monkeypatch.setenv("WANDB_MODE", "offline")
    for folder in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(folder, str(tmp_path / "of_wandb"))
    loggers = parts("logger", "wandb", tmp_path)
    assert set(loggers) == {"csv", "wandb"}
    fit({}, loggers, tiny(), epochs=1)
    loggers["wandb"].experiment.finish()
    out, err = capfd.readouterr()
    assert "wandb" not in out + err
    assert list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))
