"""Networks that somebody has made, to be trained beside those that a search finds."""
