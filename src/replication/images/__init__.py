"""Images on their way to a model: opening, decoding, transforms, and loading by counting."""
