"""The metrics file in all situations."""

import math
import struct

import torch
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.runs.metrics_csv import MetricsCSV, read_metrics


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


def test_rewinding_drops_an_incomplete_line(tmp_path):
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


def test_table_of_text_raises(tmp_path, refusal):
    (tmp_path / "metrics.csv").write_text("step,loss\n1,low\n")
    assert "Cannot read the table of numbers" in refusal(read_metrics, tmp_path / "metrics.csv")
