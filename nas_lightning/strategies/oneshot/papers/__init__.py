"""Papers, as compositions with a name: each takes the arguments that its paper speaks of."""
