"""Measures that several papers use, one module each."""
