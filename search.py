"""Search an architecture: the same as `nas-search`, see `nas-search --help`."""

from nas_lightning.cli import search

if __name__ == "__main__":
    search()
