"""Helpers that every package uses."""
