"""Search an architecture: `python search.py --help` tells how."""

from nas_lightning.cli import search

if __name__ == "__main__":
    search()
