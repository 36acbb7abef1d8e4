"""What parallel text is like, and what fits it: `jaxsyn.new`.

`pairs` looks through the files and `languages` says what they are in;
`findings` puts that into words. `choices` has the rules by the amount of text,
`splits` and `parsers` say what is held out and what is parsed, and `config_file`
writes it all down. None of them imports JAX.
"""
