"""What no paper has: other ways to make Swin equivariant to shifts, to compare with."""
