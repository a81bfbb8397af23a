"""Ensembles of architectures: searched, selected, evaluated, attacked."""
