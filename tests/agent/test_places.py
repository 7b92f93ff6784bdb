"""Trees number each distinct token of packed states once, and say who sees whom."""

import numpy as np
import pytest
import torch

from magellan.core.codec import PADDING, PROMPT, PackedState, stack
from magellan.fastpath.trie import build_tree
from magellan.model.packing import batch


def random_states(seed: int, n: int = 12, words: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Packed states from few words, so that beginnings, and whole candidates, often repeat."""
    rng = np.random.default_rng(seed)
    states = []
    for _ in range(n):
        lengths = [rng.integers(1, 6), *rng.integers(1, 4, rng.integers(1, 6))]
        segments = np.repeat(np.arange(len(lengths)), lengths)
        states.append(PackedState(rng.integers(0, words, len(segments)), segments))
    return stack(states)


def paths(tokens: np.ndarray, segments: np.ndarray) -> list[list[tuple[int, ...]]]:
    """For each state, what stands before and at each of its tokens in its own sequence."""
    found = []
    for row, parts in zip(tokens, segments, strict=True):
        prompt = tuple(row[parts == PROMPT].tolist())
        mine = [prompt[: i + 1] for i in range(len(prompt))]
        for candidate in range(1, parts.max() + 1):
            branch = tuple(row[parts == candidate].tolist())
            mine += [prompt + branch[: i + 1] for i in range(len(branch))]
        found.append(mine)
    return found


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_every_distinct_beginning_is_one_node(seed, share):
    tokens, segments = batch(*random_states(seed))._arrays
    order = np.lexsort(tokens.T[::-1])
    tokens, segments = tokens[order], segments[order]
    tree = build_tree(tokens, segments, share_prompts=share)
    prompts = [row[parts == PROMPT].tolist() for row, parts in zip(tokens, segments, strict=True)]
    expected = set()
    for state, (mine, prompt) in enumerate(zip(paths(tokens, segments), prompts, strict=True)):
        for path in mine:
            shared = share and len(path) <= len(prompt)
            expected.add((None if shared else state, len(path) > len(prompt), path))
    if share:  # rows are compared with their neighbour only, so a beginning may come back later
        assert len(expected) <= len(tree) < len(build_tree(tokens, segments))
    else:
        assert len(tree) == len(expected)


def seen(tree, state: int, column: int) -> tuple[int, ...]:
    """Tokens that a place sees, in order of position; its own is the last."""
    visible = tree.visible[state if len(tree.visible) > 1 else 0, column]
    nodes = tree.rows.nodes[state][visible]
    assert tree.positions[nodes].tolist() == list(range(len(nodes)))
    return tuple(tree.tokens[nodes].tolist())


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_place_sees_its_own_sequence_and_nothing_else(seed, share):
    tokens, segments = random_states(seed)
    order = np.lexsort(tokens.T[::-1])
    tokens, segments = tokens[order], segments[order]
    tree = build_tree(tokens, segments, share_prompts=share)
    filled = torch.ones(tree.rows.nodes.shape, dtype=torch.bool)
    filled = filled if tree.rows.filled is None else tree.rows.filled
    for state, mine in enumerate(paths(tokens, segments)):
        columns = filled[state].nonzero().squeeze(1).tolist()
        assert {seen(tree, state, column) for column in columns} == set(mine)
        assert len(columns) == len(set(mine))


@pytest.mark.parametrize("seed", range(4))
def test_candidates_are_spelled_by_their_tokens(seed):
    tokens, segments = random_states(seed)
    tree = build_tree(tokens, segments)
    spelled: dict[int, list[int]] = {}
    for slot, part in zip(tree.slots.tolist(), tree.parts.tolist(), strict=True):
        spelled.setdefault(slot, []).append(int(tree.tokens[tree.after[part]]))
    expected = {
        state * tree.candidates + k - 1: row[parts == k].tolist()
        for state, (row, parts) in enumerate(zip(tokens, segments, strict=True))
        for k in range(1, parts.max() + 1)
    }
    assert spelled == expected
    assert tree.last_slots.tolist() == sorted(expected)
    for node, slot in zip(tree.last.tolist(), tree.last_slots.tolist(), strict=True):
        assert int(tree.tokens[node]) == expected[slot][-1]
        state = slot // tree.candidates
        prompt = int((segments[state] == PROMPT).sum())
        assert int(tree.positions[node]) == prompt + len(expected[slot]) - 1


def test_rows_lay_out_and_pick_up():
    tokens, segments = random_states(3)
    tree = build_tree(tokens, segments)
    values = torch.arange(len(tree) * 6.0).view(-1, 6)
    laid_out = tree.rows.lay_out(values, heads=2)
    assert laid_out.shape == (len(tokens) * 2, tree.rows.nodes.shape[1], 3)
    assert torch.equal(tree.rows.pick_up(laid_out, heads=2), values)
    node = int(tree.rows.nodes[4, 2])
    assert torch.equal(laid_out[4 * 2 + 1, 2], values[node, 3:])


def test_selected_nodes_keep_their_state_and_column():
    tokens, segments = random_states(5)
    tree = build_tree(tokens, segments)
    nodes = torch.tensor(sorted({0, 3, len(tree) - 1, *tree.last.tolist()}))
    rows, (states, columns) = tree.select(nodes)
    back = tree.rows.nodes[states, columns]
    assert torch.equal(back.flatten()[rows.owners], nodes)
    if rows.filled is not None:
        assert int(rows.filled.sum()) == len(nodes)


def test_each_choice_of_nodes_is_selected_by_itself():
    tree = build_tree(*random_states(3))
    all_nodes = torch.arange(len(tree))
    first, second = all_nodes[: len(tree) // 2], all_nodes[len(tree) // 2 :]
    kept = tree.select(first)
    for nodes in (second, first.clone(), first):
        rows, (states, columns) = tree.select(nodes)
        assert torch.equal(tree.rows.nodes[states, columns].flatten()[rows.owners], nodes)
    assert tree.select(first) is kept


def test_padding_is_no_token():
    tokens, segments = random_states(1)
    wider = (
        np.pad(tokens, ((0, 0), (0, 3))),
        np.pad(segments, ((0, 0), (0, 3)), constant_values=PADDING),
    )
    assert len(build_tree(*wider)) == len(build_tree(tokens, segments))
