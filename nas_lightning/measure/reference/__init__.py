"""The plain way to compute what the project computes fast, to compare with."""
