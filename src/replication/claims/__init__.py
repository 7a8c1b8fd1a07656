"""Judge what was measured by what a paper prints and claims."""
