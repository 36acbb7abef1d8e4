"""The first story: what a sentence is.

Reading order:
  text          lines of raw text, opened and checked
  stream        the sentences of a file or of standard input, as they come
  align         where words stand, and which word a subword is of
  conllu        trees as a file in CoNLL-U has them; `conllu_rows`
  conllu   the same tied to lines: a sentence with its tree
  parsers       the same by a parser, from raw lines, after the second story;
                `parser_identity`
  vocabulary    subwords, with their places in the raw line
  tree          what a tree says of its words: distances, parents' middles
  controls      other trees than the parser's, to compare with
  example       all of this as the arrays of `jaxsyn.data.schema`
  linearise     a tree as a row of brackets
"""
