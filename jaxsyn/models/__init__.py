"""The encoder-decoders and what they are made of."""
