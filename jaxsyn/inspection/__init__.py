"""What a trained model looks at: maps, pooling, a probe, pictures."""
