"""Searches without a supernet."""
