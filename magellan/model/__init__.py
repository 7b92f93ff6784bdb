"""The language model: loading, LoRA adapters, packing of states, scores of actions."""
