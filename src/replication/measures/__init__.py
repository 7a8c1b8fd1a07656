"""What tables of several papers measure, one module each."""
