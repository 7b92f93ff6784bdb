"""The update: what it computes, which parameters it moves; and the transitions it is given."""

import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from magellan.agent.learning import apply_head, mlp
from magellan.agent.replay import Batch, NStepWindow, Replay, Step, Transition
from magellan.agent.sac import SAC, with_candidates_of
from magellan.core.codec import PADDING, Codec, PackedState, stack
from magellan.model.backbone import ADAPTERS, Backbone
from magellan.model.scoring import Scores
from magellan.model.settings import AgentConfig, BackboneConfig
from tests.agent.tiny import CANDIDATES, PROMPTS, close, moved, reversed_batch

approx = partial(pytest.approx, rel=1e-5)  # of a few operations in float32


def make_agent(seed=0, learning_rate=1e-2, **settings):
    backbone = Backbone(BackboneConfig(lora_targets="all_linear", lora_rank=4), seed=seed)
    config = AgentConfig(critic_hidden=(8,), learning_rate=learning_rate, **settings)
    return SAC(backbone, config, seed=seed)


def make_batch(agent):
    packed = Codec(agent.backbone.tokenizer).pack(PROMPTS, CANDIDATES)
    returns, discounts = np.array([[0.5, 1.0], [0.5, 0.0]], np.float32)
    given = {"actions": np.array([1, 3]), "returns": returns, "discounts": discounts}
    return reversed_batch(*stack(packed), **given)


def snapshot(agent):
    groups = {name: agent.backbone.adapter(name) for name in ADAPTERS}
    groups["critic"] = dict(agent.critic.named_parameters())
    groups["target"] = dict(agent.target_critic.named_parameters())
    groups["frozen model"] = dict(agent.backbone._plain.named_parameters())
    groups["temperature"] = {"log_alpha": agent.log_alpha}
    return {g: {k: v.detach().clone() for k, v in group.items()} for g, group in groups.items()}


ALWAYS = {"policy", "critic", "critic_target", "target"}
FIXED = {"temperature": "fixed"}
MOVED = [
    (FIXED, 2, ALWAYS),
    ({**FIXED, "actor_warmup_updates": 0}, 2, ALWAYS),
    ({"actor_warmup_updates": 2}, 2, ALWAYS),
    ({"actor_warmup_updates": 2}, 3, ALWAYS | {"temperature"}),
    # The target's adapter still follows the policy's, from which it starts at random distance.
    ({"critic_trains_adapter": False}, 2, {"critic", "target", "critic_target"}),
]


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize(("settings", "updates", "expected"), MOVED)
def test_exactly_these_parameters_move(settings, updates, expected, joint):
    """All of the policy's; a LoRA's A only moves once its B has left zero."""
    agent = make_agent(joint_update=joint, **{"actor_warmup_updates": 5, **settings})
    before = snapshot(agent)
    for _ in range(updates):
        agent.update_policy(make_batch(agent))
    after = snapshot(agent)
    assert moved(before, after) == expected
    if "policy" in expected:
        assert not [k for k, v in after["policy"].items() if torch.equal(v, before["policy"][k])]


def test_target_moves_by_polyak_exactly():
    agent = make_agent(polyak=0.25)
    before = snapshot(agent)
    agent.update_policy(make_batch(agent))
    after = snapshot(agent)
    for online, target in (("critic", "target"), ("policy", "critic_target")):
        new, old = ({k: v.double() for k, v in g.items()} for g in (after[online], before[target]))
        exact = {key: 0.75 * old[key] + 0.25 * new[key] for key in old}
        close(after[target], {key: value.float() for key, value in exact.items()}, exact)


@pytest.mark.parametrize(("choice", "equal"), [("copy", True), ("random", False)])
def test_target_at_the_start(choice, equal):
    start = snapshot(make_agent(target_init=choice))
    for online, target in (("critic", "target"), ("policy", "critic_target")):
        pairs = zip(start[online].values(), start[target].values(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs) is equal


@pytest.mark.parametrize("adapter", ["own", "policy"])
def test_bootstrap_target_by_hand(adapter, monkeypatch):
    agent = make_agent(target_adapter=adapter)
    agent.log_alpha.data.fill_(math.log(2.0))
    calls = []

    def score(adapter, states):
        calls.append((adapter, len(states.tokens)))
        policy = torch.tensor([[0.5, 0.5, 0.0]])  # the third candidate does not exist
        return Scores(policy.log(), torch.tensor([[1.0], [3.0]]), torch.tensor([0, 1]))

    monkeypatch.setattr(agent, "_score", score)
    agent.target_critic = nn.Linear(1, 1)
    agent.target_critic.weight.data.fill_(10.0)
    agent.target_critic.bias.data.fill_(0.0)
    target = agent._bootstrap_target(make_batch(agent))
    # Row 0: 0.5 + 0.5 (mean of 10 and 30 + 2 log 2); row 1 has ended, so its return stands alone.
    assert target.tolist() == approx([0.5 + 0.5 * (20 + 2 * math.log(2)), 1.0])
    assert calls == [("policy", 1), ("critic_target", 1)][: 2 if adapter == "own" else 1]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"temperature": "released"}, [-math.log(4), -math.log(2)]),
        ({"temperature": "max_entropy", "target_entropy_scale": 0.5}, np.log([4, 2]) / 2),
        ({"temperature": "target_entropy"}, [-0.125, -0.125]),  # the paper's: below any entropy
        ({"temperature": "target_entropy", "target_entropy": 0.5}, [0.5, 0.5]),
    ],
)
def test_target_entropies_and_where_they_move_the_temperature(rule, expected):
    agent = make_agent(**rule, temperature_learning_rate=0.1)
    target = agent._target_entropy(torch.tensor([4.0, 2.0]))
    assert target.tolist() == approx(expected)
    before = agent.temperature
    agent._temperature_step(torch.tensor([0.01]), torch.tensor([4.0]))
    assert (agent.temperature < before) == (expected[0] < 0.01)


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_actor_learns_the_action_with_the_larger_value(joint, seed):
    """Of five actions of one state "Go to water" alone is good.

    For any rounding: it starts near uniform, and at its best has e^10 / (e^10 + 4) on water.
    """
    settings = {"temperature": "fixed", "temperature_initial": 0.1, "actor_warmup_updates": 60}
    agent = make_agent(seed, 1e-3, score="log_prob_sum", joint_update=joint, **settings)
    packed = Codec(agent.backbone.tokenizer).pack(PROMPTS[:1] * 5, CANDIDATES[:1] * 5)
    tokens, segments = stack(packed)
    returns, zeros = np.array([[0, 0, 1, 0, 0], [0] * 5], np.float32)
    batch = Batch(tokens, segments, np.arange(5), returns, zeros, tokens, segments)
    learnt = []
    for updates in (60, 20):
        for _ in range(updates):
            agent.update_policy(batch)
        learnt.append(agent.probabilities(packed[:1])[0, 2])
    assert learnt[0] < 0.7, "the policy knows before the actor learns"
    assert learnt[1] > 0.9


def test_actor_follows_the_values_by_hand(monkeypatch):
    """The loss by the logit of action a: pi(a) (gap(a) - mean gap), gap = alpha log pi - Q."""
    agent = make_agent(temperature_initial=0.1)
    monkeypatch.setattr(agent, "critic", nn.Identity())
    logits = torch.tensor([[0.3, -0.2, 0.5]], requires_grad=True)
    values = torch.tensor([0.2, 1.0, -0.4])
    log_policy = torch.log_softmax(logits, dim=1)
    agent._actor_loss(Scores(log_policy, values[:, None], torch.arange(3))).backward()
    policy = log_policy.detach().exp()
    gap = 0.1 * log_policy.detach() - values
    expected = (policy * (gap - (policy * gap).sum())).flatten()
    assert logits.grad.flatten().tolist() == approx(expected.tolist())


def test_candidates_of_the_current_state_under_the_next_prompt():
    agent = make_agent()
    batch = make_batch(agent)
    following = batch.next_tokens, batch.next_segments
    tokens, segments = with_candidates_of(following, (batch.tokens, batch.segments))
    decode = agent.backbone.tokenizer.decode
    assert decode(tokens[0][segments[0] == 0]) == PROMPTS[1]
    assert decode(tokens[0][segments[0] == 2]) == CANDIDATES[0][1]


def test_signs_of_a_collapsed_critic(monkeypatch):
    """Hidden units pushed below zero whatever they read, 0, 3 and 8 of 8; equal features."""
    agent = make_agent()
    before, states = snapshot(agent), Codec(agent.backbone.tokenizer).pack(PROMPTS, CANDIDATES)
    values, looked = agent.values(states), agent.critic_statistics(states)
    assert looked["value"] == approx(values[values != 0].mean())
    assert moved(before, snapshot(agent)) == set()
    bias = agent.critic[0].bias.requires_grad_(False)
    for pushed in (0, 3, 8):
        bias[:] = 1e3
        bias[:pushed] = -1e3
        assert agent.critic_statistics(states)["dormant"] == pushed / 8
    features = torch.zeros(4, agent.backbone.width)
    monkeypatch.setattr(agent, "_score", lambda *_: SimpleNamespace(features=features))
    for column, spread in (([1.0, 3.0, 1.0, 3.0], 5**-0.5), ([2.0] * 4, 0.0)):
        features[:, 0] = torch.tensor(column)  # mean 2; mean square 5 of the first
        assert agent.critic_statistics(states)["spread"] == pytest.approx(spread)


def test_a_head_without_gradients_keeps_what_is_not_finite():
    head = mlp(6, (8, 8), nn.ReLU, torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert apply_head(head, torch.full((2, 6), torch.nan)).isnan().all()


def state(number, length=3):
    return PackedState(np.full(length, number, np.int32), np.zeros(length, np.int8))


def test_three_step_returns_of_a_five_step_episode():
    window, transitions = NStepWindow(3, 0.5), []
    for i, reward in enumerate([1.0, 0.0, 2.0, 0.0, 4.0]):
        transitions += window.add(Step(state(i), i % 2, reward), state(i + 1), ended=i == 4)
    assert not window.steps
    # s0: 1 + 0/2 + 2/4 = 1.5 and goes on from s3; s1: 0 + 2/2 + 0/4 = 1 and goes on from s4;
    # s2: 2 + 0/2 + 4/4 = 3, s3: 0 + 4/2 = 2 and s4: 4 reach the end.
    ends = [(int(t.state.tokens[0]), int(t.next_state.tokens[0])) for t in transitions]
    assert ends == [(0, 3), (1, 4), (2, 5), (3, 5), (4, 5)]
    of_steps = [(t.returns, t.discount, t.action) for t in transitions]
    assert of_steps == [(1.5, 0.125, 0), (1, 0.125, 1), (3, 0, 0), (2, 0, 1), (4, 0, 0)]


def transition(number, length=3):
    return Transition(state(number, length), number, float(number), 0.5, state(-number, length))


def test_the_oldest_transition_is_replaced_and_padding_is_marked():
    replay = Replay(3, np.random.default_rng(0))
    for number, length in ((1, 2), (2, 4), (3, 2), (4, 2)):
        replay.add(transition(number, length))
    batch = replay.sample(3)
    assert sorted(batch.returns.tolist()) == [2.0, 3.0, 4.0]
    row = batch.returns.tolist().index(4.0)
    assert batch.tokens[row, :2].tolist() == [4, 4]
    assert batch.next_tokens[row, :2].tolist() == [-4, -4]
    assert batch.segments[row].tolist() == [0, 0, PADDING, PADDING]


def test_success_fraction_and_marks():
    replay = Replay(1_000, np.random.default_rng(0), success_fraction=0.3)
    serials = [replay.add(transition(number)) for number in range(500)]
    replay.mark_success(serials[:50])
    draws = np.concatenate([replay.sample(100).returns for _ in range(50)])
    # 30 of 100 by right, and 10 % of the other 70 by chance: 0.37 of all.
    assert 0.34 < (draws < 50).mean() < 0.40


def test_marks_do_not_reach_what_has_replaced_a_transition():
    replay = Replay(2, np.random.default_rng(0), success_fraction=1.0)
    first = replay.add(transition(1))
    replay.add(transition(2))
    replay.add(transition(3))  # stands where the first one stood
    replay.mark_success([first])
    assert not replay.state_dict()["fields"]["success"].any()
