"""What a person reads of runs: a page of one, a table of many."""
