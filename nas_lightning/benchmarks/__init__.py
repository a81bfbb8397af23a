"""Tabular benchmarks: what architectures reach when they are trained, looked up instead of trained."""
