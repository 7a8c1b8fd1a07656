"""Publish results, and compare results with the published ones."""
