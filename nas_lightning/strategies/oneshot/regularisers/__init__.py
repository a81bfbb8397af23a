"""Terms beside the loss that an architecture step descends."""
