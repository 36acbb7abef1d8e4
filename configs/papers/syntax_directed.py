"""English to German of Chen et al. 2018 (AAAI), as trained.

"Syntax-Directed Attention for Neural Machine Translation", sections 4.1 and
4.2: 4.43 million pairs of WMT14 (Common Crawl, News Commentary, Europarl v7).
Their models were made in Nematus; what the paper leaves open follows that
toolkit (Sennrich et al. 2017, and its code of that year). The corpora are not
ours to give: put the files named in `splits` into one folder, tokenised
(vocabularies are of words), and name it with --raw_dir. Their other task,
Chinese to English, is of LDC's corpora, which are not public; it is not here.

Scores are case-insensitive. Detokenise the translations, then
  python -m jaxsyn.score --lowercase --reference REF --hypothesis HYP
BLEU while training is cased and of tokenised text: good to choose a checkpoint.

Unknown, and what stands here instead:
  dropout        "the default dropout technique in Nematus [...] on the all
                 layers": its rates where it is switched on, 0.2 on embeddings
                 and states, none of whole words.
  optimiser      Adadelta without its numbers: the toolkit's decay 0.95 and
                 epsilon 1e-6; its largest gradient norm, 1.
  length         whether scores of the search are divided by length: here they
                 are; the toolkit does where it is told to.
  checkpoint     "about 400k mini-batches": the best of those by BLEU on the
                 validation set, looked at each 10,000 as there. The toolkit
                 by itself goes by the likelihood.
  query          the paper scores with the state before the step, the toolkit
                 with that of the first of the decoder's two cells. Here as
                 there, for the position as well.
  window         Eq. 11 sums over words of at most n edges, but also speaks of
                 places in [p - n, p + n]. Here edges. How the position becomes
                 an index and how it learns: see syntax_directed_position.py.
  two contexts   which one moves the decoder's state: here the global one.
  FlexibleAtt    its span and width: as in jaxsyn/syntax/windows/flexible.py.
  unknown words  whether they were replaced. Here they stay.
Differs from the authors:
  batch          80 pairs; we count tokens. Here 32 a pair, the padding
                 included: our choice. The toolkit sorts 20 batches by length.
  loss           the toolkit adds up a sentence's words and takes the mean of
                 sentences; here it is the mean of words. As the norm is cut at
                 1, gradients there were larger, next to epsilon, than here;
                 --config.losses.nll.weight=N, N the mean words of a target
                 sentence, comes close to it.
  late updates   the toolkit's Adadelta applies each gradient one update late.
  parser         UDPipe unless CoNLL-U of another one (theirs: Stanford's) is
                 given; its words are matched to those of the text.

Published, BLEU: see syntax_directed_results.py.
"""

from __future__ import annotations

import dataclasses

import ml_collections

from configs import base, systems
from jaxsyn.errors import InputError, did_you_mean


@dataclasses.dataclass(frozen=True)
class Task:
  """A half of the paper's Tables 1 and 2.

  Attributes:
    source, target: languages.
    validation: what its files are called before the language.
    tests: the same; also the names of the splits.
  """

  source: str
  target: str
  validation: str
  tests: tuple[str, ...]


TASKS = {
  "wmt14_en_de": Task(
    "en",
    "de",
    "newstest2012",
    ("newstest2013", "newstest2014", "newstest2015"),
  ),
}
PAIRS = 80  # a batch
TOKENS_A_PAIR = 32  # padding included


def get_config(task: str, system: str) -> ml_collections.ConfigDict:
  """The settings of a task for any system.

  Raises: InputError: unknown task or system.
  """
  if task not in TASKS:
    raise InputError(f"no task {task!r}. {did_you_mean(task, TASKS)}")
  config, facts = base.get_config(), TASKS[task]
  config.data.name = f"paper_syntax_directed_{task}"
  config.data.directory = f"data/paper_syntax_directed_{task}"
  config.data.source_language = facts.source
  config.data.target_language = facts.target
  config.data.test = facts.tests
  files = {"train": "train", "validation": facts.validation}
  for split, stem in (files | {name: name for name in facts.tests}).items():
    sides = (facts.source, facts.target)
    config.prepare.splits[split] = tuple(f"{stem}.{side}" for side in sides)
  config.prepare.clean.max_words = 80
  config.prepare.vocabulary.update(type="word", size=50_000, joint=False)
  config.batch.tokens = PAIRS * TOKENS_A_PAIR
  config.model.update(width=620, tie_embeddings=False, tie_output=False)
  config.model.gru.update(
    hidden=1000,
    alignment=0,
    initialisation="orthogonal",
    update="first",
    dropout_embedding=0.2,
    dropout_hidden=0.2,
    dropout_source=0.0,
    dropout_target=0.0,
  )
  config.losses.nll.smoothing = 0.0
  config.optimiser.update(
    name="adadelta", learning_rate=1.0, schedule="constant", clip=1.0
  )
  config.optimiser.adadelta.update(rho=0.95, epsilon=1e-6)
  config.train.update(steps=400_000, evaluate_every=10_000, save_every=2500)
  config.decode.update(
    beam=12, length_penalty="fairseq", alpha=1.0, checkpoint="best"
  )
  systems.apply(config, system)
  for section in (config.parts.encoder, config.model.gru.windows):
    if "source_dependency" in section:
      section.source_dependency.size = 260  # Chen et al. 2017: beside 360
  return config
