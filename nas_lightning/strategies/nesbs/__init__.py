"""NESBS: a search for architectures that predict well together."""
