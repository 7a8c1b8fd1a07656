"""From results to the committed ones, and results against the published ones."""
