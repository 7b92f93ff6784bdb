"""Trees number each distinct token of packed states once, and record which sees which."""

import numpy as np
import pytest

from magellan.core.codec import PADDING, PROMPT, stack
from magellan.fastpath.trie import build_tree
from tests.agent.tiny import random_states


def some_states(seed: int) -> tuple[np.ndarray, np.ndarray]:
    return stack(random_states(seed, 12, words=3, longest=5))


def paths(tokens: np.ndarray, segments: np.ndarray) -> list[list[tuple[int, ...]]]:
    """For each state, what stands before and at each of its tokens in its own sequence."""
    states = []
    for row, parts in zip(tokens, segments, strict=True):
        prompt = tuple(row[parts == PROMPT].tolist())
        beginnings = [prompt[: i + 1] for i in range(len(prompt))]
        for candidate in range(1, parts.max() + 1):
            branch = tuple(row[parts == candidate].tolist())
            beginnings += [prompt + branch[: i + 1] for i in range(len(branch))]
        states.append(beginnings)
    return states


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_every_distinct_beginning_is_one_node(seed, share):
    tokens, segments = some_states(seed)
    order = np.lexsort(tokens.T[::-1])
    tokens, segments = tokens[order], segments[order]
    tree = build_tree(tokens, segments, share_prompts=share)
    prompts = [row[parts == PROMPT].tolist() for row, parts in zip(tokens, segments, strict=True)]
    expected = set()
    of_states = zip(paths(tokens, segments), prompts, strict=True)
    for state, (beginnings, prompt) in enumerate(of_states):
        for path in beginnings:
            shared = share and len(path) <= len(prompt)
            expected.add((None if shared else state, len(path) > len(prompt), path))
    if share:  # rows are compared with their neighbour only, so a beginning may come back later
        assert len(expected) <= len(tree) < len(build_tree(tokens, segments))
    else:
        assert len(tree) == len(expected)


def test_padding_is_no_token():
    tokens, segments = some_states(1)
    wider = (
        np.pad(tokens, ((0, 0), (0, 3))),
        np.pad(segments, ((0, 0), (0, 3)), constant_values=PADDING),
    )
    assert len(build_tree(*wider)) == len(build_tree(tokens, segments))
