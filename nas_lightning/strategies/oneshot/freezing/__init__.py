"""Rules by which the weights of single operations stop to learn."""
