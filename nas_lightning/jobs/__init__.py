"""Jobs: a search, a training, an ensemble, a study; each takes its parts and needs no command line."""
