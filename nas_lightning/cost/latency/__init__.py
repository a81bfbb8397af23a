"""How long networks take on a device: measured for a few, predicted for a whole space, with error bars."""
