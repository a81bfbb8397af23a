"""Speed and memory compared with references: `make bench`, or `python -m benchmarks.ntk --help`."""
