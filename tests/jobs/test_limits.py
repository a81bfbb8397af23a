"""The latency of the result beside its limit: on the screen, in the summary, and on the page."""

import json
import re
from pathlib import Path

import torch

from nas_lightning.objectives.latency import Device, write_device
from nas_lightning.spaces import NasBench201
from nas_lightning.spaces.base import draw_distinct
from tests.cli.conftest import TINY_SEARCH, command  # noqa: F401

SPACE = NasBench201()


def test_a_search_states_predicted_and_measured_latency(tmp_path, command):  # noqa: F811
    drawn = draw_distinct(SPACE, 12, torch.Generator().manual_seed(1))
    ms = {SPACE.notation(genotype): 1.0 + sum("conv" in op for op in genotype.ops) for genotype in drawn}
    settings = {"runtime": "eager", "threads": "1", "clock": "wall"}
    write_device(tmp_path / "laptop.csv", "laptop", ms, settings)
    limits = ("limits.latency_ms=3.5", "limits.device=laptop.csv", "limits.params=1e5")
    code, out, err = command("search", *TINY_SEARCH, *limits, "strategy=random", "run=a")
    assert code == 0, err

    facts = json.loads(Path("a/summary.json").read_text())
    (notation,) = facts["notation"]
    device, genotype = Device("laptop.csv", SPACE), SPACE.parse(notation)
    predicted, limited = device.latency(genotype), facts["limits"]["latency_ms"]
    assert (limited["value"], limited["error"], limited["limit"]) == (*predicted, 3.5)
    assert limited["value"] + limited["error"] <= 3.5
    assert facts["limits"]["params"] == {"value": facts["params"], "limit": 100_000.0}
    assert facts["measured"]["conditions"] == "PyTorch, 1 thread, wall clock"

    number = r"\d\S*"
    beside = rf"latency_ms {number}( ± {number} predicted| measured) by laptop.csv \(limit 3.5\)"
    here = rf"latency_ms here {number} ± {number} measured on this machine \(PyTorch, 1 thread, wall clock\)"
    page = Path("a/report.html").read_text()
    for line in (beside, here, r"params [\d,]+ \(limit 100,000\)"):
        found = re.search(rf"^{line}$", out, re.M)
        assert found, out
        assert found[0].removeprefix("latency_ms ").removeprefix("here ").removeprefix("params ") in page
