"""How a trained supernet is searched for an architecture."""
