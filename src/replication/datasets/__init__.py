"""Datasets: fetching, checking and composing them, and the functions that open their formats."""
