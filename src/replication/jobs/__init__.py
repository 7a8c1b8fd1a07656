"""The work of the graph's jobs: take a measurement, find the weights of a run."""
