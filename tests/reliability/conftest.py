"""What happens to runs, and what comes into them, besides what their users type."""

from tests.cli.conftest import command, finished, images, runs

__all__ = ["command", "finished", "images", "runs"]
