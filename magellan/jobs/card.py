"""The model card of a trained agent: what it is, how well it does, how it is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from magellan.config import UNIT_COLUMNS, Phase, RunConfig, identity, phases_of
from magellan.core.columns import COLUMNS, PHASE
from magellan.core.errors import printable
from magellan.jobs.versions import Origin
from magellan.model.files import from_anywhere
from magellan.worlds import SPLITS, WORLDS

GOALS = {"train": "training goals", "unseen": "unseen goals"}
"""Splits in words."""


@dataclass(frozen=True)
class About:
    """What a card says beside the configuration.

    Attributes:
        config: of the run.
        reached: updates, steps and episodes behind the agent, by `update`, `step`, `episode`.
        complete: whether the run is at its end.
        evaluation: rows of the run's table `evaluation`, in order.
        origin: code and libraries that made it, and its language model.
        encoder_decoder: whether the language model is one.
        adapters: names of the adapters' folders.
        prompt, actions: at the beginning of an episode, as an example.
        folder: of the agent.
    """

    config: RunConfig
    reached: Mapping[str, int]
    complete: bool
    evaluation: Sequence[Sequence[Any]]
    origin: Origin
    encoder_decoder: bool
    adapters: Sequence[str]
    prompt: str
    actions: Sequence[str]
    folder: Path


def model_card(about: About) -> str:
    """Text of the card, in Markdown with the front matter that model hubs read."""
    config = about.config
    base = from_anywhere(config.backbone.model)
    front = {
        "library_name": "peft",
        # A hub reads its own names here, no others.
        **({} if Path(base).is_absolute() else {"base_model": base}),
        "tags": ["lora", "reinforcement-learning", config.world, config.sampler],
    }
    goals = phases_of(config)[-1].goal_space
    return f"""---
{yaml.safe_dump(front, sort_keys=False, allow_unicode=True).rstrip()}
---
# Agent: {config.sampler}, {config.world} {goals}, seed {config.seed}

LoRA adapters and heads of an agent that learned by reinforcement to act in the text world
{WORLDS[config.world].label}. The language model is frozen and not in this folder.
{"" if about.complete else _unfinished(about)}
## What was trained
| | |
|---|---|
{_rows(_facts(about))}

## Files
| | |
|---|---|
{_rows(_files(about))}

## Success
{_success(about)}

## Use
Run this from any folder. `agent` is this folder, `folder` that of the language model: change what
is elsewhere now.

```python
{snippet(about)}```
"""


def _unfinished(about: About) -> str:
    done = about.reached[_unit(about.config)]
    budget = about.config.budget
    return (
        f"\nThe run is **not at its end**: {done} of {budget.end} {budget.unit}, "
        f"update {about.reached['update']}.\n"
    )


def _unit(config: RunConfig) -> str:
    return UNIT_COLUMNS[config.budget.unit]


def _rows(cells: Iterable[Sequence[str]]) -> str:
    """Lines of a table; a cell is one line, and has no bar of its own."""
    clean = ([printable(cell).replace("|", "\\|") for cell in row] for row in cells)
    return "\n".join(f"| {' | '.join(row)} |" for row in clean)


def _facts(about: About) -> list[tuple[str, str]]:
    config, reached = about.config, about.reached
    lora, budget = config.backbone, config.budget
    versions = ", ".join(f"{name} {version}" for name, version in about.origin.versions.items())
    return [
        ("world", WORLDS[config.world].label),
        ("goal sampler", config.sampler),
        ("goal space", _goal_spaces(config)),
        ("seed", str(config.seed)),
        ("budget", f"{reached[_unit(config)]} of {budget.end} {budget.unit}"),
        (
            "spent",
            f"{reached['update']} policy updates, {reached['step']} environment steps, "
            f"{reached['episode']} episodes",
        ),
        ("language model", f"`{lora.model}`"),
        ("SHA-256 of its files", f"`{about.origin.backbone['sha256']}`"),
        (
            "adapters",
            f"LoRA, rank {lora.lora_rank}, alpha {lora.lora_alpha:g}, {lora.lora_targets}"
            + (f", last {lora.lora_layers} layers" if lora.lora_layers else ""),
        ),
        ("number format of the frozen model", config.backend.dtype),
        ("run", f"`{identity(config)}`"),
        ("written by", f"magellan-bench {about.origin.code_version}; {versions}"),
    ]


def _goal_spaces(config: RunConfig) -> str:
    return ", then ".join(map(_goal_space, phases_of(config)))


def _goal_space(phase: Phase) -> str:
    return f"{phase.goal_space} ({GOALS[phase.goals.split]}, drawn with seed {phase.goals.seed})"


def _files(about: About) -> list[tuple[str, str]]:
    meaning = {
        "policy": "adapter of policy and critic",
        "critic_target": "adapter of the target critic",
        "competence": "adapter of the competence estimator, as it is now",
        "competence_delayed": "adapter of the competence estimator, as it was some updates ago",
    }
    heads = "heads on the hidden states: `critic`, `target`"
    if "competence" in about.adapters:
        heads += ", `competence`, `competence_delayed`"
    rows = [(f"`{name}/`", meaning[name]) for name in about.adapters]
    return [*rows, ("`heads.safetensors`", heads)]


def _success(about: About) -> str:
    """Shares of the last evaluation; it may be earlier than the agent where a run was stopped."""
    columns, unit = (PHASE, *COLUMNS["evaluation"]), _unit(about.config)
    # Only runs with phases have the first column.
    rows = [dict(zip(columns[-len(row) :], row, strict=True)) for row in about.evaluation]
    if not rows:
        return "The run was not evaluated yet."
    when = [(row.get(PHASE), row[unit]) for row in rows]
    last = [row for row, point in zip(rows, when, strict=True) if point == when[-1]]
    cells = {
        (row["category"], row["split"]): f"{row['success']:.2f} (n = {row['n']})" for row in last
    }
    lines = [
        [str(category), *(cells.get((category, split), "") for split in SPLITS)]
        for category in dict.fromkeys(row["category"] for row in last)
    ]
    length = f"{when[-1][1]} {about.config.budget.unit}"
    return f"""Share of goals reached in the evaluation after {length},
actions drawn from the policy; n is the number of goals, one episode each.

| category | {" | ".join(GOALS[split] for split in SPLITS)} |
|{"---|" * (1 + len(SPLITS))}
{_rows(lines)}"""


def snippet(about: About) -> str:
    """Python that loads the agent, and asks it about one state."""
    score = "logits[0, -len(tail) - 1 : -1]" if not about.encoder_decoder else "logits[0, :-1]"
    before = f"output.{score}"
    if about.config.agent.score == "log_prob_sum":
        before = f"{before}.log_softmax(-1)"
    return _SNIPPET.format(
        agent=str(about.folder.resolve()),
        folder=from_anywhere(about.config.backbone.model),
        auto="AutoModelForSeq2SeqLM" if about.encoder_decoder else "AutoModelForCausalLM",
        read=_READ_ENCODER_DECODER if about.encoder_decoder else _READ_CAUSAL,
        states="decoder_hidden_states" if about.encoder_decoder else "hidden_states",
        before=before,
        competence=_COMPETENCE if "competence" in about.adapters else "",
        prompt=about.prompt,
        actions=list(about.actions),
        ask="print(competence(prompt))\n" if "competence" in about.adapters else "",
    )


_READ_CAUSAL = """    tokens = torch.tensor([tokens_of(prompt) + tail])
    return model(input_ids=tokens, output_hidden_states=True)"""
_READ_ENCODER_DECODER = """    start = [model.config.decoder_start_token_id]
    return model(
        input_ids=torch.tensor([tokens_of(prompt)]),
        decoder_input_ids=torch.tensor([start + tail]),
        output_hidden_states=True,
    )"""
_COMPETENCE = '''

@torch.no_grad()
def competence(prompt, which="competence"):
    """Predicted chance to reach the goal of a prompt; `which` may be `competence_delayed`."""
    if which not in model.peft_config:
        model.load_adapter(f"{agent}/{which}", which)
    model.set_adapter(which)
    return torch.sigmoid(head(which, last_state(read(prompt, [])), torch.tanh)).item()
'''
_SNIPPET = '''import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import {auto}, AutoTokenizer

agent = {agent!r}
folder = {folder!r}
tokenizer = AutoTokenizer.from_pretrained(folder)
base = {auto}.from_pretrained(folder, dtype=torch.float32)
model = PeftModel.from_pretrained(base, f"{{agent}}/policy", adapter_name="policy").eval()
heads = load_file(f"{{agent}}/heads.safetensors")


def tokens_of(text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def read(prompt, tail):
    """One pass over a prompt and the tokens of an action."""
{read}


def last_state(output):
    return output.{states}[-1][0, -1]


def head(name, state, activation):
    """Layers of a head, with an activation between them."""
    numbers = sorted({{int(key.split(".")[1]) for key in heads if key.startswith(f"{{name}}.")}})
    for number in numbers:
        state = heads[f"{{name}}.{{number}}.weight"] @ state + heads[f"{{name}}.{{number}}.bias"]
        state = state if number == numbers[-1] else activation(state)
    return state


@torch.no_grad()
def judge(prompt, actions):
    """Probability and value of each action."""
    model.set_adapter("policy")
    scores, values = [], []
    for action in actions:
        tail = tokens_of(action)
        output = read(prompt, tail)
        before = {before}
        scores.append(before.gather(1, torch.tensor(tail)[:, None]).sum())
        values.append(head("critic", last_state(output), torch.relu).item())
    return torch.softmax(torch.stack(scores), 0).tolist(), values
{competence}

prompt = {prompt!r}
actions = {actions!r}
print(judge(prompt, actions))
{ask}'''
