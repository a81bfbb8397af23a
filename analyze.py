"""Ask a question of architectures and searches: `python analyze.py --help` tells how."""

from nas_lightning.cli import analyze

if __name__ == "__main__":
    analyze()
