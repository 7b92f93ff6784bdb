"""Build the embedded models, `magellan.pretraining.build.RECIPES`, and write SmolLM2-135M.

Also, for any world, a small model with random weights and a tokenizer for its texts.
"""
