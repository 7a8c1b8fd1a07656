"""Estimate the cost of a target before it runs: hours, limits, disk."""
