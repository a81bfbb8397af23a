"""What a run leaves in its folder: files, facts, numbers."""
