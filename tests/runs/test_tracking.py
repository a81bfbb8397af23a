"""The metrics file in all situations, and what reaches Weights & Biases: read back from its own file."""

import json
import math
import struct
import time

import pytest
import torch
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.genotype import write_genotypes
from nas_lightning.plots.files import save_genotypes
from nas_lightning.runs.metrics_csv import MetricsCSV, read_metrics
from nas_lightning.runs.tracking import publish, wandb_logger
from nas_lightning.spaces import NasBench201


def lines(logger):
    return logger.path.read_text().splitlines()


def test_columns_grow_and_keep_their_order(tmp_path):
    logger = MetricsCSV(tmp_path / "run")
    logger.log_metrics({"z": 1.0, "epoch": 0}, step=3)
    logger.log_metrics({"a": torch.tensor(0.5), "epoch": 1}, step=7)
    logger.log_metrics({"z": 2}, step=8)
    logger.finalize("success")
    assert lines(logger) == ["step,epoch,a,z", "3,0,,1.0", "7,1,0.5,", "8,,,2.0"]


def test_a_row_is_on_disk_when_the_call_returns(tmp_path):
    logger = MetricsCSV(tmp_path)
    for step in range(5):
        logger.log_metrics({"loss": 1.0}, step)
        assert len(lines(logger)) == step + 2
    logger.finalize("success")


def test_numbers_come_back_bit_for_bit(tmp_path):
    values = [1 / 3, math.pi * 1e-30, 1e300, -0.0, float("inf"), 0.1 + 0.2]
    logger = MetricsCSV(tmp_path)
    for step, value in enumerate(values):
        logger.log_metrics({"value": value}, step)
    logger.log_metrics({"value": float("nan")}, 9)
    logger.finalize("success")
    rows = read_metrics(logger.path)
    assert [struct.pack("d", row["value"]) for row in rows[:-1]] == [
        struct.pack("d", value) for value in values
    ]
    assert math.isnan(rows[-1]["value"])


def test_rewinding_equals_never_having_logged(tmp_path):
    def log(logger, steps):
        for step in steps:
            logger.log_metrics({"loss": step / 3, "epoch": step // 4}, step)

    whole, stopped = MetricsCSV(tmp_path / "whole"), MetricsCSV(tmp_path / "stopped")
    log(whole, range(20))
    log(stopped, range(11))
    resumed = MetricsCSV(tmp_path / "stopped")
    resumed.rewind(8)
    log(resumed, range(8, 20))
    for logger in (whole, stopped, resumed):
        logger.finalize("success")
    assert lines(resumed) == lines(whole)


def test_rewinding_mends_a_line_that_was_cut_off(tmp_path):
    logger = MetricsCSV(tmp_path)
    logger.log_metrics({"loss": 1.0}, 0)
    logger.finalize("success")
    with logger.path.open("a") as file:
        file.write("1,0.")
    assert len(read_metrics(logger.path)) == 1
    logger.rewind(5)
    assert lines(logger) == ["step,epoch,loss", "0,,1.0"]


def test_rewinding_a_run_without_a_file(tmp_path):
    logger = MetricsCSV(tmp_path / "new")
    logger.rewind(0)
    assert not logger.path.exists()


def test_only_the_first_process_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    logger = MetricsCSV(tmp_path)
    logger.log_metrics({"loss": 1.0}, 0)
    logger.finalize("success")
    assert not logger.path.exists()


def test_a_table_of_words_is_refused(tmp_path, refusal):
    (tmp_path / "metrics.csv").write_text("step,loss\n1,low\n")
    assert "expected a table of numbers" in refusal(read_metrics, tmp_path / "metrics.csv")


def test_a_call_costs_a_hundredth_of_a_millisecond(tmp_path):
    logger = MetricsCSV(tmp_path)
    row = {f"metric_{i}": 0.123456789 * i for i in range(6)} | {"epoch": 3}
    best = math.inf
    for _ in range(7):
        start = time.process_time()
        for step in range(500):
            logger.log_metrics(row, step)
        best = min(best, (time.process_time() - start) / 500)
    logger.finalize("success")
    assert best <= 1e-5


# Weights & Biases


def records(path):
    """A .wandb file's records: 32 KiB blocks with pieces of (checksum, length, type), as in LevelDB's log."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, parts = path.read_bytes(), 7, b""  # behind W&B's own header
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        length, kind = struct.unpack("<HB", data[position + 4 : position + 7])
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, last
            yield Record.FromString(parts)
            parts = b""


def finished(path, seconds=30):
    """All records: W&B's own process writes the last of them behind our back."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = list(records(path))
        if any(record.WhichOneof("record_type") == "exit" for record in found):
            return found
        time.sleep(0.05)
    raise AssertionError(f"no end of the run in {path} after {seconds} s")


def item_name(item):
    return item.key or ".".join(item.nested_key)


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "run"
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "config.yaml").write_text("seed: 4711\nstrategy: {lr: 0.1}\n")
    genotype = NasBench201().sample(torch.Generator().manual_seed(0))
    write_genotypes(folder / "genotype.json", [genotype])
    save_genotypes([genotype], folder / "figures")
    return folder


def test_offline_run_holds_scalars_picture_and_artifact_and_is_silent(run_folder, monkeypatch, capfd):
    monkeypatch.setenv("WANDB_MODE", "offline")
    for folder in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(folder, str(run_folder / "of_wandb"))
    logger = wandb_logger(run_folder)
    for step in range(3):
        logger.log_metrics({"train_loss": 0.25 * step}, step)
    publish([MetricsCSV(run_folder), logger], run_folder)
    out, err = capfd.readouterr()
    assert out + err == ""

    (file,) = run_folder.glob("wandb/offline-run-*/run-*.wandb")
    found = finished(file)
    history = [
        {item_name(item): json.loads(item.value_json) for item in record.history.item}
        for record in found
        if record.WhichOneof("record_type") == "history"
    ]
    assert [row["train_loss"] for row in history if "train_loss" in row] == [0.0, 0.25, 0.5]
    assert [row["trainer/global_step"] for row in history if "train_loss" in row] == [0, 1, 2]
    (picture,) = [row["figures/genotype.path"] for row in history if "figures/genotype.path" in row]
    stored = file.parent / "files" / picture
    assert stored.read_bytes() == (run_folder / "figures" / "genotype.png").read_bytes()
    (artifact,) = [record.artifact for record in found if record.WhichOneof("record_type") == "artifact"]
    assert artifact.type == "genotype"
    assert [entry.path for entry in artifact.manifest.contents] == ["genotype.json"]
    config = {
        item.key: json.loads(item.value_json)
        for record in found
        if record.WhichOneof("record_type") == "run"
        for item in record.run.config.update
    }
    assert config["seed"] == 4711


def test_publishing_without_weights_and_biases_does_nothing(run_folder):
    before = sorted(run_folder.rglob("*"))
    publish([MetricsCSV(run_folder)], run_folder)
    assert sorted(run_folder.rglob("*")) == before


def test_without_an_account_it_says_what_works_without(run_folder, monkeypatch, refusal):
    import wandb

    def no_account(**options):
        raise wandb.errors.UsageError("No API key configured.")

    monkeypatch.setattr(wandb, "init", no_account)
    message = refusal(wandb_logger, run_folder)
    assert message == "expected Weights & Biases, or WANDB_MODE=offline: No API key configured. (in logger)"
