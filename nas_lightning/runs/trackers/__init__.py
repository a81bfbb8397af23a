"""How each of Lightning's loggers is told what a run has come to: a file each, which nothing else names."""
