"""Build the embedded models `zoo-reader`, `zoo-mini` and `craft-reader`, and write SmolLM2-135M.

Also, for any world, a small model with random weights and a tokenizer for its texts.
"""
