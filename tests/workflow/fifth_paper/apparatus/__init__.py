"""What the tables of a template paper measure."""
