"""Train an architecture: `python train.py --help` tells how."""

from nas_lightning.cli import train

if __name__ == "__main__":
    train()
