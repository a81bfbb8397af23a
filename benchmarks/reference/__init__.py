"""Reference implementations that benchmarks and tests compare with."""
