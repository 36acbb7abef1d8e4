"""Generator of the quickstart's corpus in English and an invented language.

`preprocess.quickstart` writes the corpus. The modules, in order of reading:
  lexicon      words of both languages
  grammar      random dependency trees of English words
  translation  sentence pairs (`Pair`) from these trees
  corpus       distinct sentence pairs for each split
  parser       training and evaluation of a parser for the English text
"""
