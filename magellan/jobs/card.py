"""The model card of a trained agent: what it is, how well it performs, how to load it."""

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
from magellan.model.files import portable_reference
from magellan.worlds import SPLITS, WORLDS

GOALS = {"train": "training goals", "unseen": "unseen goals"}
"""Splits in words."""


@dataclass(frozen=True)
class CardData:
    """Contents of a model card.

    Attributes:
        config: configuration of the run.
        state: of its trainer.
        complete: whether the run has ended.
        origin: code, libraries and language model behind the agent.
        encoder_decoder: whether the language model is an encoder-decoder.
        adapters: names of the adapters' folders.
        prompt, actions: an example, from the start of an episode.
        folder: of the agent.
    """

    config: RunConfig
    state: Mapping[str, Any]
    complete: bool
    origin: Origin
    encoder_decoder: bool
    adapters: Sequence[str]
    prompt: str
    actions: Sequence[str]
    folder: Path


def model_card(data: CardData) -> str:
    """Return the card in Markdown, with the front matter that model hubs read."""
    config = data.config
    base = portable_reference(config.backbone.model)
    front = {
        "library_name": "peft",
        # Hubs only resolve model names here, not paths.
        **({} if Path(base).is_absolute() else {"base_model": base}),
        "tags": ["lora", "reinforcement-learning", config.world, config.sampler],
    }
    goals = phases_of(config)[-1].goal_space
    return f"""---
{yaml.safe_dump(front, sort_keys=False, allow_unicode=True).rstrip()}
---
# Agent: {config.sampler}, {config.world} {goals}, seed {config.seed}

LoRA adapters and heads of an agent trained by reinforcement learning in the text world
{WORLDS[config.world].label}. The language model is frozen and not in this folder.
{"" if data.complete else _progress_note(data)}
## What was trained
| | |
|---|---|
{_table_rows(_facts(data))}

## Files
| | |
|---|---|
{_table_rows(_files(data))}

## Success
{_success(data)}

## Use
Run this from any folder. `agent` is this folder, `folder` that of the language model: edit the
paths if either has moved.

```python
{snippet(data)}```
"""


def _progress_note(data: CardData) -> str:
    return f"\nThe run is **not complete**: {_progress(data)}, update {data.state['updates']}.\n"


def _progress(data: CardData) -> str:
    budget = data.config.budget
    return f"{data.state[budget.unit]} of {budget.end} {budget.unit}"


def _table_rows(cells: Iterable[Sequence[str]]) -> str:
    """Format table rows; newlines and bars in cells are escaped."""
    clean = ([printable(cell).replace("|", "\\|") for cell in row] for row in cells)
    return "\n".join(f"| {' | '.join(row)} |" for row in clean)


def _facts(data: CardData) -> list[tuple[str, str]]:
    config, state, lora = data.config, data.state, data.config.backbone
    versions = ", ".join(f"{name} {version}" for name, version in data.origin.versions.items())
    return [
        ("world", WORLDS[config.world].label),
        ("goal sampler", config.sampler),
        ("goal space", ", then ".join(map(_describe_goals, phases_of(config)))),
        ("seed", str(config.seed)),
        ("budget", _progress(data)),
        (
            "spent",
            f"{state['updates']} policy updates, {state['steps']} environment steps, "
            f"{state['episodes']} episodes",
        ),
        ("language model", f"`{lora.model}`"),
        ("SHA-256 of its files", f"`{data.origin.backbone['sha256']}`"),
        (
            "adapters",
            f"LoRA, rank {lora.lora_rank}, alpha {lora.lora_alpha:g}, {lora.lora_targets}"
            + (f", last {lora.lora_layers} layers" if lora.lora_layers else ""),
        ),
        ("number format of the frozen model", config.backend.dtype),
        ("run", f"`{identity(config)}`"),
        ("written by", f"magellan-bench {data.origin.code_version}; {versions}"),
    ]


def _describe_goals(phase: Phase) -> str:
    return f"{phase.goal_space} ({GOALS[phase.goals.split]}, drawn with seed {phase.goals.seed})"


def _files(data: CardData) -> list[tuple[str, str]]:
    meaning = {
        "policy": "adapter of policy and critic",
        "critic_target": "adapter of the target critic",
        "competence": "adapter of the current competence estimator",
        "competence_delayed": "adapter of the delayed competence estimator, some updates old",
    }
    heads = "heads on the hidden states: `critic`, `target`"
    if "competence" in data.adapters:
        heads += ", `competence`, `competence_delayed`"
    rows = [(f"`{name}/`", meaning[name]) for name in data.adapters]
    return [*rows, ("`heads.safetensors`", heads)]


def _success(data: CardData) -> str:
    """Success at the last evaluation, which may predate the agent if the run was stopped."""
    columns, unit = (PHASE, *COLUMNS["evaluation"]), UNIT_COLUMNS[data.config.budget.unit]
    # Only runs with phases have the first column.
    table = data.state["record"]["tables"]["evaluation"]
    rows = [dict(zip(columns[-len(row) :], row, strict=True)) for row in table]
    if not rows:
        return "The run has not been evaluated yet."
    points = [(row.get(PHASE), row[unit]) for row in rows]
    last = [row for row, point in zip(rows, points, strict=True) if point == points[-1]]
    cells = {
        (row["category"], row["split"]): f"{row['success']:.2f} (n = {row['n']})" for row in last
    }
    lines = [
        [str(category), *(cells.get((category, split), "") for split in SPLITS)]
        for category in dict.fromkeys(row["category"] for row in last)
    ]
    length = f"{points[-1][1]} {data.config.budget.unit}"
    return f"""Share of goals reached in the evaluation after {length},
actions drawn from the policy; n is the number of goals, one episode each.

| category | {" | ".join(GOALS[split] for split in SPLITS)} |
|{"---|" * (1 + len(SPLITS))}
{_table_rows(lines)}"""


def snippet(data: CardData) -> str:
    """Python code that loads the agent and applies it to one state."""
    score = "logits[0, -len(tail) - 1 : -1]" if not data.encoder_decoder else "logits[0, :-1]"
    logits = f"output.{score}"
    if data.config.agent.score == "log_prob_sum":
        logits = f"{logits}.log_softmax(-1)"
    return _SNIPPET.format(
        agent=str(data.folder.resolve()),
        folder=portable_reference(data.config.backbone.model),
        auto="AutoModelForSeq2SeqLM" if data.encoder_decoder else "AutoModelForCausalLM",
        read=_READ_ENCODER_DECODER if data.encoder_decoder else _READ_CAUSAL,
        states="decoder_hidden_states" if data.encoder_decoder else "hidden_states",
        logits=logits,
        competence=_COMPETENCE if "competence" in data.adapters else "",
        prompt=data.prompt,
        actions=list(data.actions),
        ask="print(competence(prompt))\n" if "competence" in data.adapters else "",
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
    """Predicted chance of reaching the prompt's goal; `which` may be `competence_delayed`."""
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
    """Forward pass over a prompt and the tokens of an action."""
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
        logits = {logits}
        scores.append(logits.gather(1, torch.tensor(tail)[:, None]).sum())
        values.append(head("critic", last_state(output), torch.relu).item())
    return torch.softmax(torch.stack(scores), 0).tolist(), values
{competence}

prompt = {prompt!r}
actions = {actions!r}
print(judge(prompt, actions))
{ask}'''
