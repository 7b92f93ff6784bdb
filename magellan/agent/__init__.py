"""The LLM agent: backbone with LoRA adapters, one-pass scoring, discrete SAC, replay."""
