"""What the tables and figures of each paper measure and draw, a folder a paper."""
