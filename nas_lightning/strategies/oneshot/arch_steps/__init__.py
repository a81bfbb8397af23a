"""How a step moves the architecture parameters, and what descends their gradients."""
