"""The systems that learn from trees and translate without: one function each.

Part of the table in configs/systems.py.
"""

from __future__ import annotations

import ml_collections

Config = ml_collections.ConfigDict


def _second(config: Config, task: str) -> None:
  config.data.second.update(
    task=task,  # "parse": a tree as target; "source": a tree as source; "none"
    brackets="dependency",  # or "constituency", as published, where given
    weight=1.0,  # of such an example in the loss; 1: plain mixing, as published
    longest=250,  # leave out those with a longer side, EOS and tags included
  )


def multitask(config: Config) -> None:
  """To translate and to parse: Currey & Heafield 2019, as re-done in B&O 2020.

  Every source is used twice, between tags that ask for its translation or for
  its tree without the words. Translating needs no parser. The papers have
  constituency trees; brackets of dependency trees are a variation of ours.
  """
  _second(config, "parse")


def mixed_encoder(config: Config) -> None:
  """Plain and parsed sources to one target: Currey & Heafield 2019.

  In training every source also comes as a tree with its words; what is
  translated is the plain one, so translating needs no parser.
  """
  _second(config, "source")


def _parsing_heads(place: Config, part: str, **more) -> None:
  place[part] = dict(
    layers=(0,),  # of the place, from 0
    heads=(0,),  # of those layers, from 0
    gold="off",  # attend to the data's parents (of config.data.tree) instead of
    # those it finds: in "training" alone, or "always", an oracle
    **more,
  )


def sisa(config: Config) -> None:
  """One encoder head learns to parse: Bugliarello & Okazaki 2020's SISA.

  No parser is needed to translate. config.data.tree = "linear" or "random"
  makes the controls.
  """
  _parsing_heads(config.parts.encoder, "sisa")
  config.losses.source_heads = dict(weight=1.0)  # their parse_penalty


def dbsa(config: Config) -> None:
  """A head of the encoder and one of the decoder learn to parse.

  Deguchi et al. 2019, λ_dep = 0.5 a side. Trees on both sides to train; no
  parser is needed to translate.
  """
  config.prepare.parse.sides = ("source", "target")
  bias = True  # a term of the key alone, as in the authors' code
  _parsing_heads(config.parts.encoder, "dbsa", bias=bias)
  _parsing_heads(
    config.parts.decoder,
    "dbsa",
    bias=bias,
    rows="output",  # a subword is parsed by the state that predicts it; or by
    # the next one, whose "input" it is
  )
  config.losses.source_heads = dict(weight=0.5)
  config.losses.target_heads = dict(
    weight=0.5,
    full_context=False,  # the loss of a second pass that sees the future too
    count_hidden=False,  # the mean is over parents on the right too, as there
  )


def sync_attention(config: Config) -> None:
  """DBSA whose two parses agree across the cross-attention: Deguchi et al. 2021.

  λ_sync as chosen for WMT14 En-De; 0.1 for En-Ro, 10 for Ja-En.
  """
  dbsa(config)
  config.losses.synchronisation = dict(
    weight=0.5,
    layer=-2,  # of the cross-attention, from 0; from the end where negative:
    # -2 is the last but one, and the only one of a decoder of one layer
    normalise="softmax",  # rows of the mapped parse; "renorm" or "log" are
    # sharper
    temperature=1.0,  # of that softmax
    stop_gradient="none",  # or held fixed: "mapped" parse, "decoder", "cross"
    alignment="output",  # "input" where the decoder's rows are
  )
