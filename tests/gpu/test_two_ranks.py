"""Two processes on pretended GPUs, under the rules of NCCL: what one process finds, and no idle rank."""

import json

import pytest

from tests.gpu.jobs import run_search, run_training
from tests.strategies.test_processes import fit

EVALUATED = "strategy.evaluation=training dataset.train_size=48"
FAST = [f"search evolution nasbench201 {EVALUATED}", "train trainer.sync_batchnorm=true"]
FAMILIES = ("darts", "pr_darts", "gdas", "nasi", "nesbs", "spos", "hnas", "metric_search", "oles")
SLOW = [*(f"search {name} nasbench201" for name in FAMILIES), "search darts nasbench201 derivation=pruning"]


def run_alone(folder, job):
    """Run the job in this process on the CPU, with the batches of two processes."""
    kind, *words = job.split()
    if kind == "search":
        strategy, space, *words = words
        return run_search(folder, "cpu", *words, "dataset.batch_size=8", strategy=strategy, space=space)
    return run_training(folder, "cpu")


@pytest.mark.parametrize("jobs", [FAST, pytest.param(SLOW, marks=pytest.mark.slow)], ids=["fast", "slow"])
def test_two_ranks(jobs, tmp_path):
    fit(tmp_path, [f"{job} dataset.batch_size=4" for job in jobs], "tests.gpu.two_ranks", [(2, 0), (2, 1)])
    for number, job in enumerate(jobs):
        first, second = (json.loads((tmp_path / f"{number}_{rank}").read_text()) for rank in range(2))
        assert first["notation"] == second["notation"], job
        assert first["metrics"] == second["metrics"], job
        if job.startswith("search"):  # masks of dropout and drop path
            assert first["random"] != second["random"], job
        for rank in (first, second):
            assert not {"convolution", "convolution_backward"} & {*rank["host_work"]}, job
            assert rank["operations"]["convolution"] > 0, job  # no idle rank
            assert rank["collectives"], job
        alone = run_alone(tmp_path / f"alone_{number}", job)
        assert list(alone.notation) == first["notation"], job
        if job.startswith(("train", "search evolution")):
            losses = {name: value for name, value in alone.metrics.items() if name in first["metrics"]}
            assert losses
            assert {name: first["metrics"][name] for name in losses} == pytest.approx(losses, rel=1e-3), job
