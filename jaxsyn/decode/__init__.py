"""Beam search over the model contract: search, rank, beam, programs, pool."""
