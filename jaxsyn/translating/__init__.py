"""What the commands around translation share: flags, input, output, forced scores."""
