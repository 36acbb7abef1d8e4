"""Searches over the model contract, in places that are used again.

Reading order: `search` (what is remembered), `rank`, `beam` and the other searches
of `searches`, `prefix` and `phrases` (what may be asked), `ensemble`; `programs`,
`pool` and `translator` run them. `forced` scores what is given.
"""
