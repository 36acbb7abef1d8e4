"""Encoding of sentences: raw text, CoNLL-U, subwords, alignments and trees.

Modules:
  text, sgml: lines of raw text from files, pipes and SGML test sets
  align: character offsets of words, and the word of each subword
  conllu, conllu_blocks: CoNLL-U, and parses of lines
  stream: sentences that are translated as they arrive
  vocabulary, segmentation: subwords by SentencePiece, and sampled subwords
  alignments: word alignments of sentence pairs
  tree, spectrum, linearise: arrays computed from a tree
  controls, noise: linear, random and noisy trees
  example: all arrays of a sentence pair
  parsers: dependency parsers
"""
