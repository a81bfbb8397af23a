"""Studies: what a paper's tables and figures ask, asked of this suite's own runs."""
