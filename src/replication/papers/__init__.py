"""Measures and figures of each paper, in one package for each."""
