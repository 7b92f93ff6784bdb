"""Whether a model can be read the way this package reads: several candidates in one pass.

Families differ in ways that no file tells: positions that cannot restart, a state that is carried
from token to token, a bias or a limit behind the logits. What is scored wrongly is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from magellan.core.codec import Codec, stack
from magellan.core.errors import is_out_of_memory
from magellan.model.backbone import ADAPTERS, Backbone
from magellan.model.loading import unusable
from magellan.model.scoring import total_scores
from magellan.worlds import World

# Largest difference of log-probabilities, in shares of one more than their size.
LARGEST_GAP = {torch.float32: 1e-3, torch.bfloat16: 0.05}


def check_scores(backbone: Backbone, world: World) -> None:
    """Score two actions together, and each by an ordinary call of the model.

    Fresh adapters change nothing, so both must agree. Nothing is checked where the world names no
    texts.

    Raises:
        InputError: they do not, or the model cannot be called.
    """
    pairs = world.longest()
    if not pairs:
        return
    prompt, actions = pairs[0][0], [pairs[0][1], pairs[-1][1]]
    name = backbone.config.model
    try:
        together = _together(backbone, prompt, actions)
        alone = _one_by_one(backbone, prompt, actions)
    except Exception as error:  # what a foreign family raises is the library's choice
        if is_out_of_memory(error):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise unusable(name, f"cannot be read with several actions ({reason[:200]})") from error
    gap = float(((together - alone).abs() / (1 + alone.abs())).max())
    if not gap <= LARGEST_GAP[backbone.dtype]:
        raise unusable(
            name,
            f"scores actions otherwise together than one by one (log-probability "
            f"{float(together[0]):.4g} and {float(alone[0]):.4g} for the first, "
            f"{float(together[1]):.4g} and {float(alone[1]):.4g} for the second)",
        )


@torch.no_grad()
def _together(backbone: Backbone, prompt: str, actions: Sequence[str]) -> Tensor:
    """Log-probability of each action, (actions,), from one pass."""
    states = Codec(backbone.tokenizer).pack([prompt], [actions])
    batch = backbone.batch(*stack(states))
    return total_scores(backbone, ADAPTERS[0], batch, "log_prob_sum")[0][0]


@torch.no_grad()
def _one_by_one(backbone: Backbone, prompt: str, actions: Sequence[str]) -> Tensor:
    """The same from one ordinary call for each."""
    head, *tails = Codec(backbone.tokenizer).encode([prompt, *actions])
    found = []
    for tail in tails:
        logits = backbone.plain_logits(head.tolist(), tail.tolist())
        wanted = torch.tensor(tail.tolist(), device=logits.device)
        found.append(logits.float().log_softmax(-1).gather(1, wanted[:, None]).sum())
    return torch.stack(found)
