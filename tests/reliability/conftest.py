"""Tests of faults: killed processes, full disks, damaged and malicious files."""

from tests.cli.conftest import command, finished, images, runs

__all__ = ["command", "finished", "images", "runs"]
