"""What cells of every space are made of: graphs with weighted edges, weighted choices, drop path."""
