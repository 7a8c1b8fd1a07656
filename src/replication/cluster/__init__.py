"""What a job tells the cluster, and what the cluster has."""
