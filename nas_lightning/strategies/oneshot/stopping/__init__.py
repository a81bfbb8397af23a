"""Rules that end a search early."""
