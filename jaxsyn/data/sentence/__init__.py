"""The first story: what a sentence is.

Reading order:
  text          lines of raw text, opened and checked
  stream        the sentences of a file or of standard input, as they come
  conllu        a sentence with its tree, as CoNLL-U has it; `conllu_rows`
  parser        the same by UDPipe, from a raw line
  vocabulary    subwords, with their places in the raw line
  align         which subword belongs to which word
  tree          what a tree says of its words: distances, parents' middles
  controls      other trees than the parser's, to compare with
  example       all of this as the arrays of `jaxsyn.data.schema`
  linearise     a tree as a row of brackets
"""
