"""Our GRPO against the loss that TRL documents, and against TRL itself where it is installed."""

import numpy as np
import pytest
import torch

from magellan.agent.grpo import GRPO, STOPPED, group_advantages
from magellan.model.settings import GrpoConfig
from magellan.pretraining.own_words import build_model
from tests.agent.tiny import close
from tests.runs import refusal

LONGEST, ANSWERS = 6, 4
REWARDS = np.array([[0.0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]])
SETTINGS = [
    GrpoConfig(loss=loss, scale=scale, temperature=temperature)
    for loss in ("dapo", "grpo", "dr_grpo")
    for scale, temperature in ((True, 1.0), (False, 0.7))
]


def agent(settings):
    return GRPO(build_model(9).eval(), settings)


def written():
    """Prompts of several lengths, and answers of several lengths; one has no end."""
    rng = np.random.default_rng(0)
    heads = [rng.integers(3, 9, n).astype(np.int32) for n in (2, 5, 3, 4)]
    answers = np.full((len(heads) * ANSWERS, LONGEST), STOPPED)
    for row, answer in enumerate(answers):
        length = 1 + row % LONGEST
        answer[:length] = rng.integers(3, 9, length)
        if length < LONGEST:
            answer[length - 1] = 2
    return [head for head in heads for _ in range(ANSWERS)], answers


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    found = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    return {"loss": loss.detach(), **found}


def documented(model, settings, prompts, answers):
    """The loss of TRL's documentation with beta = 0, answer by answer and token by token."""
    group_sums, lengths, advantages = [], [], []
    for group in torch.tensor(REWARDS, dtype=next(model.parameters()).dtype):
        divisor = group.std() + 1e-4 if settings.scale else 1.0
        advantages += [(reward - group.mean()) / divisor for reward in group]
    for head, tail, advantage in zip(prompts, answers, advantages, strict=True):
        tail = [token for token in tail.tolist() if token != STOPPED]
        logits = model(torch.tensor([[*head.tolist(), *tail]])).logits[0, len(head) - 1 : -1]
        chosen = (logits / settings.temperature).log_softmax(-1)[range(len(tail)), tail]
        group_sums.append(-((chosen - chosen.detach()).exp() * advantage).sum())
        lengths.append(len(tail))
    if settings.loss == "grpo":
        return torch.stack([s / n for s, n in zip(group_sums, lengths, strict=True)]).mean()
    tokens = sum(lengths) if settings.loss == "dapo" else len(answers) * LONGEST
    return torch.stack(group_sums).sum() / tokens


def check(ours, settings, other):
    """Loss and gradients are those of another, through the documentation in float64."""
    prompts, answers = written()
    exact = build_model(9).double().eval()
    found = gradients(ours._model, ours.loss(prompts, answers, REWARDS, LONGEST))
    close(found, other, gradients(exact, documented(exact, settings, prompts, answers)))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_loss_and_gradients_are_those_of_the_documentation(settings):
    single = build_model(9).eval()
    other = gradients(single, documented(single, settings, *written()))
    check(agent(settings), settings, other)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_loss_and_gradients_are_those_of_trl(settings, tmp_path):
    trl = pytest.importorskip("trl")
    from datasets import Dataset

    from magellan.pretraining.digits import build_tokenizer

    prompts, answers = written()
    ours, model = agent(settings), build_model(9).eval()
    ruled = {"loss_type": settings.loss, "scale_rewards": "group" if settings.scale else "none"}
    ruled |= {"temperature": settings.temperature, "per_device_train_batch_size": len(answers)}
    sizes = {"max_completion_length": LONGEST, "num_generations": ANSWERS}
    args = trl.GRPOConfig(str(tmp_path), **ruled, **sizes, use_cpu=True, report_to="none")
    data, tokenizer = Dataset.from_dict({"prompt": ["copy 1="] * 16}), build_tokenizer()
    trainer = trl.GRPOTrainer(model, lambda **_: [0.0], args, data, processing_class=tokenizer)
    trainer.model.eval()  # as the agent, without dropout
    heads, head_mask = ours._padded(prompts)
    exists = torch.from_numpy(answers != STOPPED)
    given = torch.tensor(REWARDS, dtype=torch.float32)
    inputs = {"prompt_ids": heads, "prompt_mask": head_mask, "num_items_in_batch": exists.sum()}
    inputs |= {"completion_ids": torch.from_numpy(answers).clamp(min=0)}
    inputs |= {"completion_mask": exists.long()}
    inputs |= {"advantages": group_advantages(given, settings.scale).flatten()}
    loss = trainer._compute_loss(trainer.model, inputs)
    check(ours, settings, gradients(trainer.model, loss))


def test_answers_are_drawn_from_the_model_and_end(tmp_path):
    """Each token is where the draw falls into the model's distribution after prompt and answer."""
    ours, (prompts, _) = agent(GrpoConfig(temperature=0.8)), written()
    draws = np.random.default_rng(1).random((len(prompts), LONGEST))
    tokens, entropy = ours.write(prompts, draws)
    entropies = []
    for head, answer, row in zip(prompts, tokens, draws, strict=True):
        text, ended = head.tolist(), False
        for token, draw in zip(answer.tolist(), row, strict=False):
            assert (token == STOPPED) == ended
            if ended:
                continue
            with torch.no_grad():
                logits = ours._model(torch.tensor([text])).logits[0, -1]
            chances = (logits / 0.8).softmax(-1).double()
            entropies.append(float(-(chances * chances.log()).sum()))
            below, above = float(chances[:token].sum()), float(chances[: token + 1].sum())
            assert below - 1e-3 < draw * float(chances.sum()) < above + 1e-3
            text.append(token)
            ended = token == 2
    assert entropy == pytest.approx(np.mean(entropies), rel=1e-3)


@pytest.mark.parametrize("empty_steps", [False, True])
def test_moments_move_weights_without_advantages_only_if_asked(empty_steps):
    ours, (prompts, answers) = agent(GrpoConfig(empty_steps=empty_steps)), written()
    weights = {name: weight.clone() for name, weight in ours.state_dict()["weights"].items()}

    def update(rewards):
        ours.update_writing(prompts, answers, np.array(rewards, np.float32), LONGEST)
        after = ours.state_dict()["weights"]
        moved = any(not torch.equal(weights[name], weight) for name, weight in after.items())
        weights.update({name: weight.clone() for name, weight in after.items()})
        return moved

    equal = np.ones_like(REWARDS)
    assert [update(each) for each in (equal, REWARDS, equal)] == [False, True, empty_steps]


def test_a_model_without_an_end_is_refused():
    model = build_model(9)
    model.config.eos_token_id = None
    assert "allowed: a causal model with eos_token_id" in refusal(GRPO, model, GrpoConfig())
