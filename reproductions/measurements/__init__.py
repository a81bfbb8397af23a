"""Measurements of the papers that take hours: `python -m reproductions.measurements.nasi --help`."""
