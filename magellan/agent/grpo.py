"""GRPO: a language model writes groups of answers and is trained on their rewards.

Group relative policy optimization (Shao et al. 2024, arXiv 2402.03300) as TRL 1.16 computes it with
`beta = 0` and one update for each batch: the ratio to the policy that wrote is 1, so clipping never
acts. `tests/integrations/test_grpo.py` compares loss and gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from magellan.agent.learning import adam, adam_state, load_adam
from magellan.core.errors import InputError
from magellan.core.randomness import choose_at
from magellan.model.settings import GrpoConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel

STOPPED = -1
"""In answers, after their end."""
SMALL = 1e-4
"""Added to the standard deviation of a group's rewards, as in TRL."""


def group_advantages(rewards: Tensor, scale: bool) -> Tensor:
    """(reward - mean of its group), divided by the group's standard deviation if `scale`.

    rewards: float32 (groups, answers); a single answer has advantage 0.
    """
    centred = rewards - rewards.mean(1, keepdim=True)
    if not scale or rewards.shape[1] < 2:
        return centred
    return centred / (rewards.std(1, keepdim=True) + SMALL)


def grpo_loss(
    log_probs: Tensor, mask: Tensor, advantages: Tensor, settings: GrpoConfig, longest: int
) -> Tensor:
    """The loss of a batch of answers, a scalar.

    log_probs: of the tokens of each answer, (answers, tokens).
    mask: which tokens exist, float (answers, tokens).
    advantages: of each answer, (answers,).
    longest: most tokens of an answer, for `dr_grpo`.
    """
    ratio = torch.exp(log_probs - log_probs.detach())
    per_token = -ratio * advantages[:, None] * mask
    if settings.loss == "grpo":
        return (per_token.sum(1) / mask.sum(1).clamp(min=1.0)).mean()
    tokens = mask.sum().clamp(min=1.0) if settings.loss == "dapo" else len(mask) * longest
    return per_token.sum() / tokens


class GRPO:
    """A causal language model, all of whose weights are trained.

    Args:
        model: of `transformers`; it is changed.
        settings: the section `grpo`.
    """

    def __init__(self, model: PreTrainedModel, settings: GrpoConfig) -> None:
        end = model.config.eos_token_id
        end = end[0] if isinstance(end, list) and end else end
        if not isinstance(end, int) or model.config.is_encoder_decoder:
            raise InputError(
                "backbone.model: the model cannot write answers: it has an encoder, or no token "
                "that ends a text; allowed: a causal model with eos_token_id in config.json"
            )
        self._model, self._end, self.settings = model.requires_grad_(True), end, settings
        self._parameters = dict(model.named_parameters())
        self._optimizer = adam(self._parameters.values(), settings.learning_rate)

    @torch.no_grad()
    def write(self, prompts: Sequence[np.ndarray], draws: np.ndarray) -> tuple[np.ndarray, float]:
        """Sample an answer to each prompt.

        Args:
            prompts: token ids of each, (n,).
            draws: in [0, 1), a number for each token: float64 (n, longest).

        Returns:
            tokens, int64 (n, at most longest), with the end and then `STOPPED`; and the mean
            entropy of the distributions they were drawn from, in nats.
        """
        distinct, row_of = _distinct(prompts)
        tokens, mask = self._padded(distinct)
        logits, cache = self._next(tokens, mask)
        rows = torch.tensor(row_of, device=mask.device)
        cache.reorder_cache(rows)
        logits, mask = logits[rows], mask[rows]
        running = np.ones(len(prompts), bool)
        written, entropies = [], []
        for column in draws.T:
            log_probs = self._log_probs(logits)
            probabilities = log_probs.exp()
            entropy = -(probabilities * log_probs).sum(-1).cpu().numpy()
            entropies.append(entropy[running])
            chosen = choose_at(probabilities.double().cpu().numpy(), column)
            written.append(np.where(running, chosen, STOPPED))
            running &= chosen != self._end
            if not running.any() or len(written) == draws.shape[1]:
                break
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
            logits, _ = self._next(torch.from_numpy(chosen)[:, None].to(mask.device), mask, cache)
        return np.stack(written, 1), float(np.concatenate(entropies).mean())

    @torch.no_grad()
    def gap(self) -> float:
        """Largest difference of logits to those of ordinary calls, relative to 1 + theirs."""
        short, long = (np.resize([0, 1, 1], length) for length in (2, 5))
        tokens, mask = self._padded([short, long])
        _, cache = self._next(tokens, mask)
        last = tokens.new_tensor([[0], [1]])
        together, _ = self._next(last, torch.cat([mask, torch.ones_like(last)], 1), cache)
        gaps = []
        for row, text in enumerate((short, long)):
            alone = self._model(tokens.new_tensor([[*text, row]])).logits[0, -1]
            gaps.append(float(((together[row] - alone).abs() / (1 + alone.abs())).max()))
        return max(gaps)

    def _next(self, tokens: Tensor, mask: Tensor, cache: Any = None) -> tuple[Tensor, Any]:
        """Logits of the token after `tokens`, the last ones of `mask`: (n, vocabulary); cache."""
        places = (mask.cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        options = {"past_key_values": cache, "use_cache": True, "logits_to_keep": 1}
        output = self._model(tokens, attention_mask=mask, position_ids=places, **options)
        return output.logits[:, -1], output.past_key_values

    def _log_probs(self, logits: Tensor) -> Tensor:
        return (logits.float() / self.settings.temperature).log_softmax(-1)

    def _padded(self, texts: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
        """Tokens, padded on the left, and mask: int64 (n, length) each."""
        length = max(map(len, texts))
        tokens = np.zeros((len(texts), length), np.int64)
        mask = np.zeros_like(tokens)
        for row, text in enumerate(texts):
            tokens[row, length - len(text) :] = text
            mask[row, length - len(text) :] = 1
        device = self._model.device
        return torch.from_numpy(tokens).to(device), torch.from_numpy(mask).to(device)

    def loss(
        self, prompts: Sequence[np.ndarray], answers: np.ndarray, rewards: np.ndarray, longest: int
    ) -> Tensor:
        """The loss of groups of answers, a scalar.

        Answers without advantage add nothing to the sum and are not read.

        Args:
            prompts: token ids of the prompt of each answer, (groups * answers,).
            answers: from `write`, int64 (groups * answers, tokens).
            rewards: float64 (groups, answers of each).
            longest: most tokens of an answer.
        """
        device = self._model.device
        given = torch.from_numpy(np.asarray(rewards, np.float32)).to(device)
        advantages = group_advantages(given, self.settings.scale).flatten()
        tokens = torch.from_numpy(answers).to(device)
        mask = (tokens != STOPPED).float()
        counted = advantages.nonzero()[:, 0]
        log_probs = torch.zeros_like(mask)
        if len(counted):
            read = self._answer_log_probs([prompts[i] for i in counted.tolist()], tokens[counted])
            log_probs = log_probs.index_copy(0, counted, read)
        return grpo_loss(log_probs, mask, advantages, self.settings, longest)

    def _answer_log_probs(self, prompts: Sequence[np.ndarray], answers: Tensor) -> Tensor:
        """Log-probability of each token of the answers, (n, tokens); 0 after their end."""
        heads, mask = self._padded(prompts)
        exists = answers != STOPPED
        tails = answers.clamp(min=0)
        mask = torch.cat([mask, exists.long()], 1)
        places = (mask.cumsum(1) - 1).clamp(min=0)
        output = self._model(
            torch.cat([heads, tails], 1),
            attention_mask=mask,
            position_ids=places,
            use_cache=False,
            logits_to_keep=tails.shape[1] + 1,
        )
        chosen = self._log_probs(output.logits[:, :-1]).gather(2, tails[:, :, None])[:, :, 0]
        return chosen * exists

    def update_writing(
        self, prompts: Sequence[np.ndarray], answers: np.ndarray, rewards: np.ndarray, longest: int
    ) -> float:
        """Take one Adam step on `loss`; return its value.

        Where no answer has an advantage there is no step, unless `grpo.empty_steps`.
        """
        loss = self.loss(prompts, answers, rewards, longest)
        self._optimizer.zero_grad()
        if loss.requires_grad:
            loss.backward()
            if self.settings.gradient_clip:
                nn.utils.clip_grad_norm_(self._parameters.values(), self.settings.gradient_clip)
        elif self.settings.empty_steps:
            for weight in self._parameters.values():
                weight.grad = torch.zeros_like(weight)
        self._optimizer.step()  # leaves weights without a gradient as they are
        return float(loss.detach())

    def state_dict(self) -> dict[str, Any]:
        """Weights and Adam's moments."""
        weights = {name: weight.detach() for name, weight in self._parameters.items()}
        return {"weights": weights, "adam": adam_state(self._optimizer)}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`."""
        for name, weight in self._parameters.items():
            weight.copy_(state["weights"][name])
        load_adam(self._optimizer, state["adam"])


def _distinct(prompts: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[int]]:
    """The distinct prompts, and which of them each is."""
    numbers: dict[bytes, int] = {}
    rows = [numbers.setdefault(prompt.tobytes(), len(numbers)) for prompt in prompts]
    first = {row: prompt for prompt, row in zip(reversed(prompts), reversed(rows), strict=True)}
    return [first[number] for number in range(len(numbers))], rows
