"""Training: losses, optimizers, the training step and the training loop."""
