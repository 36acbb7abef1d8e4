"""The quickstart's language: English, and an invented one, from one grammar.

`preprocess.quickstart` writes a corpus of it, in this order of reading:
  lexicon      the words of both languages
  grammar      draws random trees of English words
  translation  reads a tree out in both languages: a `Pair`
  corpus       as many different pairs as wanted, by split
  parser       trains a parser on the English trees, and tries it
  neighbours   how well the parent and other words predict translations
"""
