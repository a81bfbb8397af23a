"""Parallel processes share out the visible GPUs."""

import os
import subprocess
import sys

import pytest

CLAIM = """
import getpass, os, sys, tempfile, torch
tempfile.tempdir = sys.argv[1]
torch.cuda.device_count = lambda: 4
from nas_lightning.utils.processes import claim_gpus
claim_gpus(int(sys.argv[2]))
claim_gpus(int(sys.argv[2]))  # changes nothing
print(os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def claims(tmp_path):
    """Return a function that starts a process and returns what it claims; all live until the end."""
    running = []

    def start(count: int, **environment: str) -> str:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        command = [sys.executable, "-c", CLAIM, str(tmp_path), str(count)]
        process = subprocess.Popen(command, env={**os.environ, **environment}, **pipes)
        running.append(process)
        return process.stdout.readline().strip()

    yield start
    for process in running:
        process.communicate()


def test_processes_claim_different_gpus(claims):
    assert [claims(1, CUDA_VISIBLE_DEVICES="5,7") for _ in range(3)] == ["5", "7", "5"]
    assert claims(2) == "0,1"
    assert claims(4) == "None"  # there is no choice
