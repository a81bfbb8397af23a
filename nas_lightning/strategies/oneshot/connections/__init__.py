"""What changes the weights of operations by the edges that they stand on."""
