"""Builds `zoo-reader`, `zoo-mini` and `craft-reader`: vectors of words, a tokenizer, random play.

And, for any world, a small model with random weights that reads its words.
"""
