"""Reading lessons: questions about what a prompt says, and objects that were never met before.

Two things happen beside next-token prediction, in pretraining only:

- Questions are answered at the last token of each prompt, by words that exist in pretraining only:
  rows of a matrix that is dropped when the model is saved. They ask what any reader of the text
  could say. None is about actions, rewards, plans, or whether a goal can be reached.
- In part of the batches the training objects' vectors are drawn anew around the mean of their
  kind. To say whether the named object is in sight, equality of vectors is then all there is to
  go by, and what was learnt of 25 names does not help. So it also works for held-out objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

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
"""Questions and the numbers of their answers, ABOUT_NAMED about the named object, then others. One
more, "Which object is named?", is answered with the object's own word, one layer before the last:
what has been recalled there can be compared in the last."""
ABOUT_NAMED = 4


@dataclass(frozen=True)
class Ids:
    """Token ids that the questions need.

    kind: int64 (vocabulary,), kind of each object's token, -1 for other tokens.
    grow: the verb in a goal line. standing, inventory: starts of the third and the last line.
    """

    kind: np.ndarray
    grow: int
    standing: int
    inventory: tuple[int, ...]

    @staticmethod
    def of(tokenizer: PreTrainedTokenizerFast) -> Ids:
        """Look them up. Held-out objects have no kind here."""
        find = tokenizer.convert_tokens_to_ids
        kind = np.full(len(tokenizer), -1)
        kind[find([f" {name}" for name in TRAIN_OBJECTS])] = KIND_OF[:NUM_TRAIN]
        hands = tuple(find(f"\nInventory ({held}/2):") for held in range(3))
        return Ids(kind, find(" Grow"), find("\nYou are standing on:"), hands)


def right_answers(prompts: Sequence[np.ndarray], ids: Ids) -> np.ndarray:
    """What the prompts say: numbers of the right answers, int64 (prompts, questions).

    Args:
        prompts: tokens of each prompt, int (length,).
    """
    tokens = np.zeros((len(prompts), max(map(len, prompts))), np.int64)
    for row, values in zip(tokens, prompts, strict=True):
        row[: len(values)] = values
    named = tokens[:, NAMED, None]
    below = (tokens == ids.standing).cumsum(axis=1) > 0
    last = np.isin(tokens, ids.inventory).cumsum(axis=1) > 0
    sight = tokens * ~below
    sight[:, : NAMED + 1] = 0
    kinds = ids.kind[sight]
    columns = [
        *((part == named).any(axis=1) for part in (sight, tokens * last, tokens * (below & ~last))),
        ids.kind[named[:, 0]],
        tokens[:, 1] == ids.grow,
        *((kinds == kind).any(axis=1) for kind in range(len(KINDS))),
    ]
    return np.stack(columns, axis=1).astype(np.int64)


class Lessons(nn.Module):
    """The questions and the words of their answers.

    Args:
        width: of the model.
        asked: the questions.
        things: token ids of what goals of training name, increasing.
    """

    def __init__(self, width: int, asked: Questions, things: list[int]) -> None:
        super().__init__()
        self.asked, self.things = asked, torch.tensor(things)
        self.words = nn.Linear(width, sum(size for _, size in asked.of_prompt))
        if asked.of_words:
            self.word_words = nn.Linear(width, sum(size for _, size in asked.of_words))

    def forward(
        self,
        triples: Sequence[Triple],
        prompts: Sequence[np.ndarray],
        states: Sequence[Tensor],
        embedding: Tensor,
    ) -> Tensor:
        """Mean cross-entropy of the right answers, in nats: summed over the questions about the
        named thing and those about words, to which the other questions add their mean. (With more
        weight these are learnt first, and the named thing is then not compared with others.)

        Args:
            triples: the texts.
            prompts: tokens of each prompt, int (length,).
            states: hidden states of every layer, (batch, length, width); the last after the norm.
            embedding: the embedding matrix of this batch, (vocabulary, width).
        """
        right = self.asked.answers(triples, prompts)
        rows, last = torch.arange(len(prompts)), torch.tensor([len(each) - 1 for each in prompts])
        losses = _losses(self.words(states[-1][rows, last]), self.asked.of_prompt, right.of_prompt)
        recalled = nn.functional.rms_norm(states[-2][rows, last], embedding.shape[1:])
        named = torch.tensor([int(each[self.asked.named]) for each in prompts])
        place = torch.searchsorted(self.things, named)
        losses = [nn.functional.cross_entropy(recalled @ embedding[self.things].T, place), *losses]
        answered, first = torch.stack(losses), self.asked.about_named + 1
        total = answered[:first].sum() + answered[first:].mean()
        if self.asked.of_words:
            there = states[-1][torch.from_numpy(right.rows), torch.from_numpy(right.places)]
            of_words = _losses(self.word_words(there), self.asked.of_words, right.of_words)
            total = total + torch.stack(of_words).sum()
        return total


def _losses(
    scores: Tensor, questions: Sequence[tuple[str, int]], right: np.ndarray
) -> list[Tensor]:
    """Mean cross-entropy of each question.

    scores: of all answers of all questions, (places, answers).
    right: int64 (places, questions).
    """
    parts = scores.split([size for _, size in questions], dim=1)
    wanted = torch.from_numpy(right)
    return [nn.functional.cross_entropy(part, wanted[:, i]) for i, part in enumerate(parts)]


def start_comparing(model: LlamaForCausalLM, spread: float, copy: float) -> None:
    """Start values under which heads attend to equal tokens and pass on what they read.

    Query and key projections of a layer are one orthogonal matrix, the output projection is `copy`
    times the inverse of the value projection; what is left is normal with deviation `spread`.
    """
    for name, weight in model.named_parameters():
        if "_proj" in name:
            nn.init.normal_(weight, std=spread)
    for layer in model.model.layers:
        attention = layer.self_attn
        nn.init.orthogonal_(attention.q_proj.weight)
        nn.init.orthogonal_(attention.v_proj.weight)
        with torch.no_grad():
            attention.k_proj.weight.copy_(attention.q_proj.weight)
            attention.o_proj.weight.copy_(copy * attention.v_proj.weight.T)


def invented_objects(vectors: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Vectors of other objects of the same kinds as the training objects, (25, width).

    Each is the mean of its kind plus normal noise in all directions, as long as the training
    objects are away from the mean of their kind on average.

    Args:
        vectors: of the training objects, (25, width).
    """
    kinds = np.asarray(KIND_OF[:NUM_TRAIN])
    means = np.stack([vectors[kinds == kind].mean(axis=0) for kind in range(len(KINDS))])[kinds]
    several = np.bincount(kinds)[kinds] > 1
    away = np.linalg.norm(vectors - means, axis=1)[several].mean()
    noise = rng.standard_normal(vectors.shape) * away * vectors.shape[1] ** -0.5
    return means + noise
