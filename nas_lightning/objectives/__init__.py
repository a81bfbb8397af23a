"""What an architecture is worth: by a table, a short training, inherited weights, or ranked metrics."""
