"""What is best where several things count at once: fronts, their order, their hypervolume."""
