"""Measurements that answer questions of the papers, each run by `python -m`."""
