"""The model cards of the backbones of the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from magellan.pretraining.reading import QUESTIONS
from magellan.pretraining.wheel import LAYER, TEMPLATES, WHEEL, WHEEL_SHA256

SMOLLM2 = {
    "grasp": {"train": 0.989, "unseen": 0.932},
    "grow": {"train": 0.999, "unseen": 0.990},
    "grow_near": {"train": 0.986, "unseen": 0.885},
}
"""AUC of the probe on layer 20 of SmolLM2-135M-Instruct; 1,500 goals to fit, 600 to test."""
ZOO_MINI = {
    "grasp": {"train": 0.591, "unseen": 0.567},
    "grow": {"train": 0.959, "unseen": 0.956},
    "grow_near": {"train": 0.841, "unseen": 0.801},
}
"""AUC of the probe on zoo-mini."""


def write_card(output: Path, name: str, recipe: dict[str, Any], figures: dict[str, Any]) -> None:
    """Write README.md: what went into the model, what did not, and measured figures."""
    reads = "probe" in figures
    rows = "\n".join(f"| {key} | {value} |" for key, value in recipe.items())
    templates = ", ".join(f"`{template}`" for template in TEMPLATES)
    (output / "README.md").write_text(
        f"""---
license: apache-2.0
library_name: transformers
---
# {name}

A causal language model of Little-Zoo's language, small enough to live in a repository and to be
trained by reinforcement learning on one CPU core. `AutoModelForCausalLM.from_pretrained` loads it.
{_READS if reads else ""}
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
{_lessons(recipe) if reads else ""}
## What did not
No goal-directed data, no reward, no success signal, no oracle, no held-out object in play (they are
also left out of the softmax, so that pretraining does not push the model away from naming them).
The goal line of a pretraining prompt is random and is not pursued.
{_NO_QUESTION if reads else ""}
## Recipe
| key | value |
|---|---|
{rows}

## Figures
- Held-out objects nearest to the training centroid of their own kind (furniture, plant, herbivore,
  carnivore) in the embedding matrix: {figures["centroid_accuracy"]:.3f} of
  {figures["held_out_objects"]} objects.
- Next-token loss at the end of pretraining: {figures["loss"]:.4f} nats per token.
{_probe_table(figures["probe"]) if reads else ""}
Rebuild with `make backbone`.
""",
        encoding="utf-8",
    )


_READS = """
It reads what `zoo-mini` skips: from its state after a prompt, a linear probe tells possible goals
from impossible ones.
"""

_NO_QUESTION = """No question is about actions, plans or rewards, and none asks whether a goal can
be reached. Held-out objects are in no question and no answer.
"""


def _lessons(recipe: dict[str, Any]) -> str:
    asked = "\n".join(f"  - {question}" for question, _ in QUESTIONS)
    return f"""- Reading questions on the same prompts, answered at the last token of the prompt by
  words that exist in pretraining only (rows that are dropped when the model is saved):
{asked}
  - Which object is named? (Answered with the object's own word, one layer before the last.)

  The first four and the last count one each in the loss, the others together one; this weight
  falls from {recipe["question_weight"]} to {recipe["question_weight_end"]}. The words of the random
  actions count once more, with a weight that rises from 0 to {recipe["action_weight"]}: else the
  model, which recalls the named object, would name it too often.
- In {recipe["invented_objects"]:.0%} of the batches the 25 training objects have other vectors:
  the mean of their kind plus normal noise as large as the objects are away from it. Whether the
  named object is in sight can then be told by equality of vectors only, so that it works for any
  object. Kinds are used here and in the questions, those of training objects only.
- Start values: query and key projections of a layer are one orthogonal matrix, the output
  projection is {recipe["start_copy"]} times the inverse of the value projection.
"""


def _probe_table(figures: dict[str, dict[str, float]]) -> str:
    names = {
        "grasp": "Grasp",
        "grow": "Grow",
        "grow_near": "Grow, one thing missing",
    }
    rows = "\n".join(
        f"| {label} | {objects} | "
        + " | ".join(f"{auc[name][split]:.3f}" for auc in (figures, ZOO_MINI, SMOLLM2))
        + " |"
        for name, label in names.items()
        for split, objects in (("train", "training"), ("unseen", "held-out"))
    )
    return f"""- Linear probe, possible against impossible goals (`magellan.pretraining.probe`), the
  area under the ROC curve; beside it `zoo-mini` and layer 20 of SmolLM2-135M-Instruct:

| goals | objects | zoo-reader | zoo-mini | SmolLM2-135M |
|---|---|---|---|---|
{rows}

  Four builds, with seeds 0, 1 (twice, on two machines) and 2, differ most where one thing is
  missing and objects are held out: 0.951, 0.849, 0.795 and 0.903; with training objects they have
  at least 0.998.
"""
