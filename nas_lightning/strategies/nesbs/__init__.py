"""NESBS: neural ensemble search by Bayesian sampling."""
