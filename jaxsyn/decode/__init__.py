"""Greedy and beam search over the model contract: search, rank, then the two."""
