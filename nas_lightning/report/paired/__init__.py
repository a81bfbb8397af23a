"""Ways of searching against one of them, seed by seed: differences, tests, ranks over data sets."""
