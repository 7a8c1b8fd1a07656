"""Methods and models that no paper has, to compare with those of the papers."""
