"""Generator of the quickstart's corpus in English and an invented language.

`preprocess.quickstart` writes the corpus. The modules, in order of reading:
  lexicon  words of both languages
  grammar  random dependency trees of English words
  corpus   distinct sentence pairs (`Pair`) from these trees
  parser   training of a parser for the English text
"""
