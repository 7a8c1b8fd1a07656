"""One JSON file a step of the graph: planned (a node) and finished (a record)."""
