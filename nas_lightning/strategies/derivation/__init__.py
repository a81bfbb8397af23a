"""How a search's end becomes genotypes, other than by its own scores."""
