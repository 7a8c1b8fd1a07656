"""What was measured against what a paper prints and claims."""
