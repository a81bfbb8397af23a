"""NASI: a search by the trace of the neural tangent kernel, before any training."""
