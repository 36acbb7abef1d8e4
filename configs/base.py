"""Every option of jaxsyn, its default, its unit and its meaning.

This is the only complete list. A data set's file calls `get_config`, changes
what differs, and lets `systems.apply` add the parts of a system. Any field can
be changed on the command line: --config.optimiser.learning_rate=1e-3.
`jaxsyn.config` checks names, types and bounds; `jaxsyn.plan`, that they fit.
"""

from __future__ import annotations

import ml_collections


def get_config() -> ml_collections.ConfigDict:
  """The defaults: Transformer-Tiny sizes for a small parallel corpus."""
  config = ml_collections.ConfigDict()

  config.system = "transformer"  # name of a function in configs/systems.py
  config.seed = 0  # seeds parameters, dropout, batch order, random trees

  # What the prepared folder is and how its text became examples.
  config.data = dict(
    name="corpus",  # TFDS data set name: lower case, digits, underscores
    directory="data/corpus",  # the prepared folder
    source_language="en",
    target_language="de",
    train="train",  # name of the split to train on
    validation="validation",  # the split for early stopping
    test=("test",),  # splits to report on, of those prepared; (): none
    # Trees given to the model, on every side that has any: "parsed", or a
    # control: "linear" (parent = previous word), "random" (a random tree of
    # the same size).
    tree="parsed",
    # A second use of every training pair, beside translating its source.
    second=dict(
      # "none"; "parse": from the source to its tree, and tags around every
      # source say which is asked for; "source": from the source with its tree
      # to the same target, without tags.
      task="none",
      # The trees: "dependency", or "constituency" where those were given
      # (config.prepare.parse.source_brackets).
      brackets="dependency",
      # Of such an example in every term of the loss, where a translation has 1:
      # the term's sum is multiplied, what the sum is divided by is not. With .3
      # a batch of such examples alone has .3 of its gradient.
      weight=1.0,
      longest=250,  # leave out those with a longer side, in subwords and
      # brackets; EOS and tags included
    ),
  )

  # Offline preparation (python -m preprocess.build).
  config.prepare = dict(
    raw_dir="",  # folder of the raw files; --raw_dir overrides it
    # Split name -> (source file, target file), plain text or .gz. A third
    # entry "FIRST-LAST" takes only these lines, from 1, both included. Of a
    # treebank (.conllu, .conllu.gz) the `# text` comments are the lines.
    splits=ml_collections.ConfigDict(),
    # (file name, URL, SHA-256) of raw files and of parser models, fetched where
    # raw_dir lacks them. SHA-256 "": that of the first fetch, which is written
    # down beside the file and holds ever after. A fourth entry, as "9000000000",
    # is the most bytes; else 4 GiB.
    downloads=(),
    workers=0,  # parser processes; 0: one a core
    shards=4,  # TFRecord files a split
    # Cleaning applies to the training split; other splits keep every line.
    clean=dict(
      empty=True,  # drop pairs with a side that has nothing to see
      # Drop pairs with NUL or other control characters. NUL in another split is
      # an error, the others stay there and are told.
      control=True,
      max_words=175,  # drop sides of more words (blank-separated); 0: off
      max_characters=1000,  # drop sides of more characters; 0: off
      max_ratio=0.0,  # drop pairs whose word ratio is above; 0: off
      duplicates=False,  # drop repeats of a pair
      nfc=False,  # rewrite text in Unicode NFC before anything else
      # Drop pairs unless py3langid's first guess of all its languages is
      # source_language for the source, and target_language for the target: the
      # rule of Bugliarello & Okazaki 2020 (with langdetect) and of Deguchi et
      # al. 2021 (with langid). It errs on short lines: of 29,000 pairs of
      # Multi30k it drops 27, most of them good, in 2 s.
      language=False,
    ),
    parse=dict(
      sides=("source",),  # which sides get trees: "source", "target"
      # UDPipe model a side: a file, or a language code for spacy-udpipe to
      # download. Empty: the language of the side.
      source_model="",
      target_model="",
      # CoNLL-U by another parser instead: split name -> file (gz or plain) of
      # all lines of the raw file; a name in raw_dir, or a path. Empty, and no
      # model said, and the raw files are treebanks: their own trees.
      source_conllu=ml_collections.ConfigDict(),
      target_conllu=ml_collections.ConfigDict(),
      # Constituency trees of the source, beside the others: split name -> file
      # (gz or plain), Penn brackets, a tree a line. The training split's do.
      source_brackets=ml_collections.ConfigDict(),
      beam=0,  # UDPipe's beam_search; 0: the model's own. 1 is faster.
    ),
    vocabulary=dict(
      size=8000,  # pieces, special symbols included
      # SentencePiece model: "bpe", "unigram", "word", "char". "word" keeps the
      # `size` most frequent strings between blanks, so give tokenised files
      # (Moses with -no-escape, KyTea) to have words without their punctuation;
      # translations are then tokenised as well. Other words are unknown, "⁇" in
      # translations.
      type="bpe",
      joint=True,  # one vocabulary for both sides
      character_coverage=1.0,  # 0.9995 for Chinese or Japanese; not of "word"
      normalisation="nmt_nfkc",  # SentencePiece's rule name
    ),
    max_subwords=250,  # drop training pairs with a longer side; EOS included
  )

  # Batches: a small set of static shapes under one budget.
  config.batch = dict(
    tokens=4096,  # rows times the longer of the two padded lengths
    shapes=12,  # how many (source, target) lengths to choose from the data
    length_multiple=1,  # padded lengths are multiples of this; 8 for a TPU
    row_multiple=8,  # rows are multiples of this and of the device count
    memory_gib=4.0,  # facts above this are memory-mapped instead of loaded
  )

  config.model = dict(
    family="transformer",  # or "gru"; a system sets it
    width=128,  # D, of both families; of "gru" that of the embeddings
    tie_embeddings=True,  # source and target share a table (joint vocabulary)
    tie_output=True,  # the output projection is the target table
    dtype="float32",  # of the computation: "float32" or "bfloat16"
    # Of the Transformer.
    encoder_layers=4,
    decoder_layers=4,
    feed_forward=256,  # F
    heads=4,  # H; width / heads is the width of a head
    norm="pre",  # layer norm "pre" or "post" the residual branch
    activation="relu",  # "relu" or "gelu"
    positions=True,  # sinusoidal positions added to the embeddings
    dropout=0.3,  # after embeddings and each residual branch
    attention_dropout=0.0,  # on attention weights
    activation_dropout=0.0,  # inside the feed-forward layers
    # Of the recurrent family, which has one layer a side and one head.
    gru=dict(
      hidden=256,  # G, units of every GRU; annotations have twice as many
      alignment=0,  # A, units of the alignment; 0: as many as `hidden`
      update="first",  # what moves the decoder's state: the "first" context,
      # in the order of WINDOWS, or "all" of them, joined
      # "xavier" uniform; or "orthogonal", Nematus's: square matrices so, all
      # others N(0, 0.01²). That takes far longer to get going: on the generated
      # corpus it has learnt nothing after 600 updates, where "xavier" has 68
      # BLEU on the validation part.
      initialisation="xavier",
      # Rates of dropout, of Nematus; one draw holds for a whole sentence.
      dropout_embedding=0.2,  # on embeddings
      dropout_hidden=0.2,  # on states, annotations, contexts and the read-out,
      # before their matrices
      dropout_source=0.0,  # of whole source words
      dropout_target=0.0,  # of whole target words, as the decoder reads them
    ),
  )

  # What changes attention, by place; see jaxsyn.syntax.PARTS. A system's part
  # has all its options written out in configs/systems.py.
  config.parts = dict(
    encoder=ml_collections.ConfigDict(),
    decoder=ml_collections.ConfigDict(),
    cross=ml_collections.ConfigDict(),
  )

  # What a recurrent decoder looks at: a context for each window named; see
  # jaxsyn.syntax.WINDOWS. A system's windows have all their options written out
  # in configs/recurrent_systems.py.
  config.contexts = ml_collections.ConfigDict()

  # Terms of the objective; see jaxsyn.training.losses.LOSSES. Those of systems
  # stand in configs/systems.py. Perplexity is of the unsmoothed likelihood.
  config.losses = dict(nll=dict(weight=1.0, smoothing=0.1))

  config.optimiser = dict(
    name="adam",  # see jaxsyn.training.optimiser.OPTIMISERS
    # The peak for "inverse_sqrt"; the factor for "noam"; adadelta as published
    # has 1.0 and "constant".
    learning_rate=4e-3,
    schedule="inverse_sqrt",  # "inverse_sqrt", "noam", "constant"
    warmup=1000,  # updates
    warmup_start=1e-7,  # learning rate of the first update (inverse_sqrt)
    minimum=0.0,  # learning rate never falls below this after the warm-up
    beta1=0.9,  # adam
    beta2=0.98,  # adam
    rho=0.95,  # adadelta: decay of its two running means
    epsilon=1e-9,  # Zeiler 2012 has 1e-6 for adadelta
    weight_decay=0.0,  # decoupled (AdamW) if above 0
    clip=0.0,  # largest global gradient norm; 0: no clipping
    # Batches a parameter update; exactly one batch of all their rows, also for
    # losses that count other things than subwords. A system of n losses needs n
    # backward passes a batch for that, and memory for n gradients more.
    accumulate=1,
  )

  config.train = dict(
    steps=20_000,  # batches
    minutes=0.0,  # stop after as much training time, resumes added; 0: off
    evaluate_every=500,  # steps between validations: losses and `selection`
    save_every=500,  # steps between checkpoints
    keep=3,  # checkpoints kept beside the best one
    log_every=50,  # steps between log lines
    patience=0,  # evaluations without a better one by `selection`; 0: off
    # What is the best on the validation split: "bleu", "chrf" or "ribes" of its
    # translations, or the "likelihood" of a target subword, for which nothing
    # is translated. A tie goes to the likelihood, and BLEU without a right
    # 4-gram counts as 0, since a model learns for long before it has any.
    selection="bleu",
    # sacreBLEU's, of the words of validation BLEU and RIBES: "13a", "zh",
    # "ja-mecab", "char", ... Empty: what fits data.target_language, as in
    # jaxsyn.scoring.tokenizers.
    tokenizer="",
    validation_beam=1,  # beam of the validation's translations; 1: greedy
    validation_sentences=0,  # of the split, to be translated; 0: all
    # Decay d of an average of the parameters, used to evaluate; 0: off. Those
    # after update i of n weigh dⁿ⁻ⁱ; the initial ones nothing.
    ema=0.0,
    average=1,  # translate with the mean of the last N kept checkpoints
    parallelism="jit",  # "jit" (NamedSharding) or "pmap"
    mesh=dict(data=-1, fsdp=1, tensor=1),  # devices an axis; -1: the rest
    prefetch=2,  # batches made ahead of the device
  )

  config.decode = dict(
    beam=5,  # 1: greedy
    length_penalty="fairseq",  # "fairseq": len**alpha; "gnmt": ((5+len)/6)**a
    alpha=1.0,
    stop="first",  # end when "first" beams ended, or none can win: "bound"
    # Longest output of a sentence, in subwords and its EOS: factor * own source
    # subwords, rounded up, + offset. The source's EOS and tags count too.
    max_length_factor=1.5,
    max_length_offset=10,
    checkpoint="best",  # parameters to translate with: "best" or "last"
    sentences=64,  # rows decoded together
    nbest=1,
  )
  return config
