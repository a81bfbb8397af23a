"""A trained network as a thing: its file, its description, its exports."""
