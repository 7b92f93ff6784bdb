"""Reading lessons: questions about the text of a prompt, and invented objects.

Pretraining adds two things to next-token prediction:

- Questions are answered at the last token of each prompt, by a linear layer that is dropped when
  the model is saved. The text alone answers them. None is about actions, rewards, plans, or whether
  a goal can be reached.
- In part of the batches the training objects' vectors are drawn anew around the mean of their
  kind. Only equality of vectors then tells whether the named object is in sight, and knowledge of
  25 names does not help. So it also works for held-out objects.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from magellan.pretraining.language import Questions, Triple
from magellan.worlds.little_zoo.vocabulary import KIND_OF, KINDS, NUM_TRAIN, TRAIN_OBJECTS

NAMED = 2
"""Place in a prompt of the object that the goal names: after "Goal:" and the verb."""

QUESTIONS = (
    ("Is the named object in sight?", 2),
    ("Is the named object in hand?", 2),
    ("Is the named object underfoot?", 2),
    ("What kind is the named object?", len(KINDS)),
    ("Which verb is named?", 2),
    *((f"Is some {kind} in sight?", 2) for kind in KINDS),
)
"""Questions and their numbers of answers, the first ABOUT_NAMED about the named object. One more,
"Which object is named?", is answered with the object's own word, one layer before the last, so that
the last layer can compare what was recalled."""
ABOUT_NAMED = 4
_KIND = dict(zip(TRAIN_OBJECTS, KIND_OF, strict=False))
NOT_ABOUT_KINDS = (0, 1, 2, 4)
"""The questions that `zoo-reader-no-kinds` is asked."""


def right_answers(prompt: str) -> list[int]:
    """Indices of the right answers about a prompt without held-out objects: (questions,)."""
    lines = (line.partition(":")[2].replace(",", "").split() for line in prompt.splitlines())
    (verb, named), sight, underfoot, hand, _ = lines
    kinds = {_KIND.get(word) for word in sight}
    return [
        *(int(named in line) for line in (sight, hand, underfoot)),
        *(_KIND[named], int(verb == "Grow")),
        *(int(kind in kinds) for kind in range(len(KINDS))),
    ]


class Lessons(nn.Module):
    """Layers that answer the questions, and their loss.

    Args:
        width: of the model.
        questions: about prompts and words.
        things: token ids of the training things, increasing.
    """

    def __init__(self, width: int, questions: Questions, things: list[int]) -> None:
        super().__init__()
        self.questions, self.things = questions, torch.tensor(things)
        self.words = nn.Linear(width, sum(size for _, size in questions.of_prompt))
        if questions.of_words:
            self.word_words = nn.Linear(width, sum(size for _, size in questions.of_words))

    def forward(
        self,
        triples: Sequence[Triple],
        prompts: Sequence[np.ndarray],
        states: Sequence[Tensor],
        embedding: Tensor,
    ) -> Tensor:
        """Mean cross-entropy of the right answers, in nats: the sum over questions about the named
        thing and about words, plus the mean over the other questions. (With more weight the others
        are learnt first, and the model then does not compare the named thing.)

        Args:
            triples: the texts.
            prompts: tokens of each prompt, int (length,).
            states: hidden states of every layer, (batch, length, width); the last after the norm.
            embedding: the embedding matrix of this batch, (vocabulary, width).
        """
        asked, right = self.questions, self.questions.answers(triples)
        balanced = bool(asked.of_words)
        rows, last = torch.arange(len(prompts)), torch.tensor([len(ids) - 1 for ids in prompts])
        scores = self.words(states[-1][rows, last])
        losses = _losses(scores, asked.of_prompt, right.of_prompt, balanced)
        recalled = nn.functional.rms_norm(states[-2][rows, last], embedding.shape[1:])
        named = torch.tensor([int(ids[asked.named]) for ids in prompts])
        place = torch.searchsorted(self.things, named)
        losses = [nn.functional.cross_entropy(recalled @ embedding[self.things].T, place), *losses]
        of_prompt, first = torch.stack(losses), asked.about_named + 1
        total = of_prompt[:first].sum() + of_prompt[first:].mean()
        if asked.of_words:
            hidden = states[-1][torch.from_numpy(right.rows), torch.from_numpy(right.places)]
            of_words = _losses(self.word_words(hidden), asked.of_words, right.of_words, balanced)
            total = total + torch.stack(of_words).sum()
        return total


def _losses(
    scores: Tensor, questions: Sequence[tuple[str, int]], right: np.ndarray, balanced: bool
) -> list[Tensor]:
    """Mean cross-entropy of each question.

    scores: of all answers of all questions, (places, answers).
    right: int64 (places, questions).
    balanced: an answer that is right n times weighs 1 / sqrt(n) each time.
    """
    parts = scores.split([size for _, size in questions], dim=1)
    labels = torch.from_numpy(right)
    losses = []
    for part, label in zip(parts, labels.T, strict=True):
        counts = torch.bincount(label, minlength=part.shape[1])
        weight = counts.clamp(min=1) ** -0.5 if balanced else None
        losses.append(nn.functional.cross_entropy(part, label, weight=weight))
    return losses


def start_comparing(
    model: LlamaForCausalLM, spread: float, copy: float, gain: float, common: float
) -> None:
    """Set initial values with which heads attend to equal tokens and copy what they read.

    Query and key projections of a layer are one orthogonal matrix times `gain`, the output
    projection is `copy` times the inverse of the value projection; the others are normal with
    deviation `spread`. If all things have a `common` first component, it is not compared.
    """
    for name, weight in model.named_parameters():
        if "_proj" in name:
            nn.init.normal_(weight, std=spread)
    for layer in model.model.layers:
        attention = layer.self_attn
        nn.init.orthogonal_(attention.q_proj.weight)
        nn.init.orthogonal_(attention.v_proj.weight)
        with torch.no_grad():
            attention.q_proj.weight *= gain
            if common:
                attention.q_proj.weight[:, 0] = 0.0
            attention.k_proj.weight.copy_(attention.q_proj.weight)
            attention.o_proj.weight.copy_(copy * attention.v_proj.weight.T)


def invented_objects(vectors: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Vectors of invented objects of the same kinds as the training objects, (25, width).

    Each is the mean of its kind plus normal noise, whose norm is the mean distance of the training
    objects from the mean of their kind.

    Args:
        vectors: of the training objects, (25, width).
    """
    kinds = np.asarray(KIND_OF[:NUM_TRAIN])
    means = np.stack([vectors[kinds == kind].mean(axis=0) for kind in range(len(KINDS))])[kinds]
    has_peers = np.bincount(kinds)[kinds] > 1
    distance = np.linalg.norm(vectors - means, axis=1)[has_peers].mean()
    noise = rng.standard_normal(vectors.shape) * distance * vectors.shape[1] ** -0.5
    return means + noise
