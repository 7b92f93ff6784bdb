"""Builds `zoo-reader` and `zoo-mini` (vectors of a real LLM, a tokenizer, random play as text).

And, for any world, a small model with random weights that reads its words.
"""
