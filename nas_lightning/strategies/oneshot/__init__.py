"""Searches that train one supernet whose weights all architectures share."""
