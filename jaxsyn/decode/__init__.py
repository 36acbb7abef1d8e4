"""Greedy and beam search over the model contract."""
