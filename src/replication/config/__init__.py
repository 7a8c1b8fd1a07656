"""What the files below ``configs/`` say, typed and checked; no torch."""
