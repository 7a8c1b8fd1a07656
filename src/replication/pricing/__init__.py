"""What a target costs before anything runs: hours, limits, disk."""
