"""What is measured on a trained model, or on no model at all, one module per measure."""
