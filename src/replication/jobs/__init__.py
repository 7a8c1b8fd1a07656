"""What a job of the graph does: take a measurement, find the weights of a run."""
