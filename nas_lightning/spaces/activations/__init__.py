"""Spaces of activation functions and skip connections, without convolutions."""
