"""How the published tables are stored."""
