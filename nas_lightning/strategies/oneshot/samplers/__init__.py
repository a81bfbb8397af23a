"""How architecture parameters become the weights of operations: each a file, a formula and its settings."""
