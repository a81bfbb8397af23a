"""Ask a question of architectures and searches: the same as `nas-analyze`, see `nas-analyze --help`."""

from nas_lightning.cli import analyze

if __name__ == "__main__":
    analyze()
