"""`study=latency`: what it foretells, and the device that it leaves."""

import numpy as np
import pytest
import torch

from nas_lightning.data import Fake, SearchData
from nas_lightning.errors import InputError
from nas_lightning.jobs.parts import Parts
from nas_lightning.objectives.latency import Device, device_settings
from nas_lightning.spaces import NasBench201
from nas_lightning.spaces.base import draw_distinct
from nas_lightning.studies import latency

SIZES = {"channels": 4, "cells": 1}
SPACE, DATA = NasBench201(), SearchData(Fake())


def run(folder, **settings):
    parts = Parts(SPACE, DATA, folder, network_sizes=SIZES)
    study = latency.Latency(**{"rounds": 4, "least_ms": 0.1, **settings})
    return study.run(SPACE, parts.network, SIZES, DATA, folder)


def fake_times(drawn):
    """Milliseconds that add up, which one round doubles for all."""
    each = {"nor_conv_3x3": 3.0, "nor_conv_1x1": 1.3, "avg_pool_3x3": 0.7}
    ms = np.array([5.0 + sum(each.get(op, 0.0) for op in genotype.ops) for genotype in drawn])
    return ms[:, None] * np.array([1.0, 1.0, 1.0, 2.0])


def test_additive_latencies_are_predicted_and_written(tmp_path, monkeypatch):
    monkeypatch.setattr(latency.Latency, "_measure", lambda self, drawn, network, image: fake_times(drawn))
    findings = run(tmp_path, networks=60, judged=20)
    assert findings.numbers["rho"] > 0.95
    assert findings.numbers["rho_repeated"] == pytest.approx(1.0)
    assert findings.numbers["median_error"] < 0.15
    device = Device(str(tmp_path / latency.FILE), SPACE, device_settings(SPACE, DATA, SIZES))
    drawn = draw_distinct(SPACE, 60, torch.Generator().manual_seed(0))
    assert [device(genotype) for genotype in drawn] == pytest.approx(
        np.median(fake_times(drawn), axis=1).tolist()
    )
    others = device_settings(SPACE, DATA, {**SIZES, "channels": 8})
    with pytest.raises(InputError, match=r"`network\.channels` must be 4, with which .*, got '8'"):
        Device(str(tmp_path / latency.FILE), SPACE, others)


@pytest.mark.parametrize("runtime", ["eager", pytest.param("onnx", marks=pytest.mark.slow)])
def test_networks_are_measured(tmp_path, runtime):
    findings = run(tmp_path, networks=5, judged=2, runtime=runtime)
    (table,) = (table for table in findings.tables if table.name == "latencies")
    assert all(row[1].value > 0 for row in table.rows)
    assert f"# runtime: {runtime}" in (tmp_path / latency.FILE).read_text().splitlines()


def test_too_few_networks_are_refused():
    with pytest.raises(InputError, match="`networks` must be at least 5, got 1"):
        latency.Latency(networks=1)


def test_processor_time_is_of_one_thread():
    with pytest.raises(InputError, match="Processor time needs a single thread: `threads` must be 1, got 2"):
        latency.Latency(clock="processor", threads=2)
