"""One JSON file for each step of the graph: a node when planned, a record when finished."""
