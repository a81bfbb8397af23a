"""Train an architecture: the same as `nas-train`, see `nas-train --help`."""

from nas_lightning.cli import train

if __name__ == "__main__":
    train()
