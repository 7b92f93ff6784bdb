"""The model card of `zoo-mini`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from magellan.pretraining.words import LAYER, TEMPLATES, WHEEL, WHEEL_SHA256


def write_card(output: Path, recipe: dict[str, Any], figures: dict[str, float]) -> None:
    """Write README.md beside the weights: what went in, what did not, and the measured figures."""
    rows = "\n".join(f"| {key} | {value} |" for key, value in recipe.items())
    templates = ", ".join(f"`{template}`" for template in TEMPLATES)
    (output / "README.md").write_text(
        f"""---
license: apache-2.0
library_name: transformers
---
# zoo-mini

A causal language model of Little-Zoo's language, small enough to live in a repository and to be
trained by reinforcement learning on one CPU core. `AutoModelForCausalLM.from_pretrained` loads it.

## What went in
- Architecture: Llama ({recipe["layers"]} layers, width {recipe["width"]}), tied embeddings, a
  word-level lossless tokenizer in which fixed phrases are one token.
- Object vectors: mean hidden states of layer {LAYER} of SmolLM2-135M-Instruct (Apache-2.0) at the
  object's word over {templates}; centred, rotated at random into {recipe["width"]} dimensions by an
  isometry, scaled to mean norm 1. Labels of kinds are not used. These rows are frozen.
  Source: the Python package `{WHEEL}`, wheel SHA-256 `{WHEEL_SHA256}`.
- Pretraining: next-token prediction on uniformly random play in scenes of training objects (prompt,
  action, next observation). Objects' kinds are uniform in these scenes. Each batch shifts the
  object vectors by random noise (the same at input and output), so that the model learns to name
  what it reads rather than 25 particular vectors.

## What did not
No goal-directed data, no reward, no success signal, no oracle, no held-out object in play (they are
also left out of the softmax, so that pretraining does not push the model away from naming them).
The goal line of a pretraining prompt is random and is not pursued.

## Recipe
| key | value |
|---|---|
{rows}

## Figures
- Held-out objects nearest to the training centroid of their own kind (furniture, plant, herbivore,
  carnivore) in the embedding matrix: {figures["centroid_accuracy"]:.3f} of
  {figures["held_out_objects"]} objects.
- Next-token loss at the end of pretraining: {figures["loss"]:.4f} nats per token.

Rebuild with `make backbone`.
""",
        encoding="utf-8",
    )
