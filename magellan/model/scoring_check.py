"""Check that a model scores several candidates, and reads several prompts, in one pass correctly.

Families differ in ways that their files do not show: positions that cannot restart, recurrent
state, a bias or a cap on the logits. A model whose scores are wrong is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from magellan.core.codec import Codec, stack
from magellan.model.backbone import ADAPTERS, Backbone
from magellan.model.loading import reported, unusable
from magellan.model.scoring import total_scores
from magellan.worlds import World

if TYPE_CHECKING:
    from magellan.agent.grpo import GRPO

# Largest error of log-probabilities, relative to 1 + their magnitude.
LARGEST_GAP = {torch.float32: 1e-3, torch.bfloat16: 0.05}


@torch.no_grad()
def check_scores(backbone: Backbone, world: World) -> None:
    """Score two actions in one pass and in separate ordinary calls of the model, and compare.

    Untrained adapters change nothing, so both must agree. Skipped if the world names no texts, or
    has no actions.

    Raises:
        InputError: they differ, or the model cannot be called.
    """
    pairs = [] if world.answer_tokens else [pair for pair in world.longest() if pair[1]]
    if not pairs:
        return
    prompt, actions = pairs[0][0], [pairs[0][1], pairs[-1][1]]
    name = backbone.config.model
    with reported(name, "cannot be read with several actions"):
        batch = backbone.batch(*stack(Codec(backbone.tokenizer).pack([prompt], [actions])))
        together = total_scores(backbone, ADAPTERS[0], batch, "log_prob_sum")[0][0]
        alone = _score_one_by_one(backbone, prompt, actions)
    gap = float(((together - alone).abs() / (1 + alone.abs())).max())
    if not gap <= LARGEST_GAP[backbone.dtype]:
        raise unusable(
            name,
            f"batched and single scores differ (log-probability "
            f"{float(together[0]):.4g} and {float(alone[0]):.4g} for the first, "
            f"{float(together[1]):.4g} and {float(alone[1]):.4g} for the second)",
        )


def check_writing(name: str, writer: GRPO) -> None:
    """Compare the next token's logits for prompts read together with those of ordinary calls.

    Raises:
        InputError: they differ, or the model cannot be called.
    """
    with reported(name, "cannot write answers"):
        gap = writer.gap()
    if not gap <= LARGEST_GAP[torch.float32]:
        raise unusable(name, f"writes otherwise for several prompts than for one (by {gap:.2g})")


def _score_one_by_one(backbone: Backbone, prompt: str, actions: Sequence[str]) -> Tensor:
    """Log-probability of each action, (actions,), from ordinary calls of the model."""
    head, *tails = Codec(backbone.tokenizer).encode([prompt, *actions])
    scores = []
    for tail in tails:
        logits = backbone.plain_logits(head.tolist(), tail.tolist())
        tokens = torch.tensor(tail.tolist(), device=logits.device)
        scores.append(logits.float().log_softmax(-1).gather(1, tokens[:, None]).sum())
    return torch.stack(scores)
