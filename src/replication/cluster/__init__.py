"""The cluster: how jobs report failures to the executor, and which partitions there are."""
