"""The objective, the optimiser, one pure step and the loop around it."""
