"""Studies and measurements of five papers, outside the wheel; their yamls are in `reproductions/conf`."""
