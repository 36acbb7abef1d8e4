"""What parallel text is like, and what fits it: `jaxsyn.new`.

`pairs` looks through the files, `languages` says what they are in, `choices`
what a corpus of that size is trained with, `config_file` writes it down. None of
them imports JAX.
"""
