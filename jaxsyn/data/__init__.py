"""From sentences to batches, in three stories: `sentence`, `store`, `loader`.

Each reads only from those before it. What an example is, by name, type and axes,
stands in `schema`, and what may be said of words beside their tree in
`annotations`: all three read them.
"""
