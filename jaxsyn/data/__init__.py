"""From sentences to batches, in three stories: `sentence`, `store`, `loader`.

What an example is, by name, type and axes, stands in `schema`: all three read it.
"""
