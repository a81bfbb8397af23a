"""One-shot search: a supernet whose weights all architectures share."""
