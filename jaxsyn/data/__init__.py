"""From sentences to batches, in three stories: `sentence`, `store`, `loader`.

Each reads only from those before it. What an example is, by name, type and axes,
stands in `schema`, what may be said of words beside their tree in `annotations`,
and the options in `options`: all three read them.
"""
