"""A language model from `transformers` with named LoRA adapters from `peft`.

Four adapters live on one frozen backbone (Gaven et al. 2025, section 4): `policy` (shared by actor
and critic), `critic_target`, `competence` and its delayed copy `competence_delayed`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from torch.func import functional_call
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from magellan.agent import older, texts
from magellan.agent.devices import CPU, find_device
from magellan.agent.packing import PackedBatch, Piece
from magellan.agent.passes import Adapted, Change, CompiledLlama, Reader, written_out_pass
from magellan.agent.settings import BackboneConfig, BackendConfig
from magellan.errors import InputError, is_out_of_memory, shown
from magellan.model_files import check_backbone, number_of_weights
from magellan.worlds import DEFAULT_WORLD, WORLDS, World

# How much larger than its weights a model may be before it is not even built.
SIZE_FACTOR, SIZE_MARGIN = 2, 10**6
ADAPTERS = ("policy", "critic_target", "competence", "competence_delayed")
FORMAT = "dtype" if older.NEW else "torch_dtype"
"""What `transformers` calls the number format of the weights."""

Loaded = tuple[PreTrainedModel, PreTrainedTokenizerBase]
"""A frozen language model and its tokenizer."""


class Backbone:
    """A frozen language model, and adapters that say how it is read.

    Args:
        config: which model, and the shape of the adapters.
        seed: seed of the adapters' initial values (A Kaiming uniform, B zero).
        world: whose texts it is to read; None: the default one.
        backend: device, number format, micro-batches; None: the defaults.
        loaded: model and tokenizer, where something else has loaded them (`checked_model`); None:
            they are loaded from the model's folder.

    Attributes:
        reader: the written-out pass; None where `transformers` reads.
        passes: what computes the passes, in words.
        device: where its weights are, and what it takes and gives.
        dtype: of the frozen weights; adapters and what it gives have float32.
        micro_batch: states per pass with gradients where `transformers` reads; 0: all.

    Raises:
        InputError: the model is missing or cannot be loaded, or not be read as configured.
    """

    def __init__(
        self,
        config: BackboneConfig,
        seed: int = 0,
        world: World | None = None,
        backend: BackendConfig | None = None,
        loaded: Loaded | None = None,
    ) -> None:
        backend = backend or BackendConfig()
        self.config = config
        self.device = find_device(backend.device)
        self.dtype: torch.dtype = getattr(torch, backend.dtype)
        self.micro_batch = backend.micro_batch
        model, self.tokenizer = loaded or load_model(config.model, world)
        self.width: int = _width(config.model, model)
        self.is_encoder_decoder: bool = model.config.is_encoder_decoder
        self._plain = copy.deepcopy(model) if config.lora_mode == "merged" else None
        with _seeded(seed), _told(config.model):
            self._peft = get_peft_model(model, self._lora(model), adapter_name=ADAPTERS[0])
            # Older versions of peft would take the first adapter's own layers for the model's.
            layers = self._peft.peft_config[ADAPTERS[0]].target_modules
            for name in ADAPTERS[1:]:
                self._peft.add_adapter(name, self._lora(model, layers))
        self._model: PreTrainedModel = self._peft.base_model.model
        self._place()
        self._layers = {
            name: module
            for name, module in self._model.named_modules()
            if isinstance(module, LoraLayer)
        }
        names = {id(module): name for name, module in self._model.named_modules()}
        self._prefixes = {
            part: names[id(_part(self._model, part))] + "."
            for part in (("encoder", "decoder") if self.is_encoder_decoder else ("decoder",))
        }
        self._merged: dict[str, dict[str, Tensor]] = {}
        self._prepared: dict[str, Any] = {}
        self.reader, self.passes = self._reader()
        self._flat: dict[str, Tensor] = {}
        self._parameters = {name: self._collect(name) for name in ADAPTERS}
        self._adapted: dict[str, Adapted] = {}

    @property
    def _as_loaded(self) -> bool:
        """Whether the weights stay on the CPU in float32, as the written-out passes take them."""
        return self.device == CPU and self.dtype == torch.float32

    def _place(self) -> None:
        """Bring all weights to the device, and those that no optimizer moves to their format."""
        if self._as_loaded:
            return
        for model in filter(None, (self._peft, self._plain)):
            for name, weight in model.named_parameters():
                if "lora_" not in name:
                    weight.data = weight.data.to(self.dtype)
            model.to(self.device)

    def _reader(self) -> tuple[Reader | None, str]:
        """What reads states, None for the library's modules, and its name for logs."""
        wanted = self.config.passes
        if self._plain is not None and self._as_loaded:
            return written_out_pass(self._plain, wanted)
        if wanted == "compiled":
            key, value = next(
                (key, value)
                for key, value, usual in (
                    ("backbone.lora_mode", self.config.lora_mode, "merged"),
                    ("backend.device", self.device.type, "cpu"),
                    ("backend.dtype", str(self.dtype).removeprefix("torch."), "float32"),
                )
                if value != usual
            )
            raise InputError(
                f"backbone.passes: 'compiled' is not for {key} {value!r}; allowed: auto, torch"
            )
        return None, "transformers"

    def tensor(self, values: np.ndarray) -> Tensor:
        """Values on this backbone's device: the door from arrays to tensors."""
        return torch.from_numpy(values).to(self.device)

    def batch(self, tokens: np.ndarray, segments: np.ndarray) -> PackedBatch:
        """A batch of packed states, (batch, length) each, that this backbone reads."""
        return PackedBatch(tokens, segments, self.device)

    def _lora(self, model: nn.Module, layers: Collection[str] = ()) -> LoraConfig:
        targets: str | list[str] = "all-linear"
        if layers:
            targets = sorted(layers)
        elif self.config.lora_targets == "attention_qv":
            targets = _attention_names(model)
        return LoraConfig(
            r=self.config.lora_rank,
            lora_alpha=self.config.lora_alpha,
            lora_dropout=0.0,
            target_modules=targets,
            task_type="SEQ_2_SEQ_LM" if self.is_encoder_decoder else "CAUSAL_LM",
        )

    def _collect(self, adapter: str) -> dict[str, nn.Parameter]:
        found = {}
        for name, layer in self._layers.items():
            found[f"{name}.lora_A"] = layer.lora_A[adapter].weight
            found[f"{name}.lora_B"] = layer.lora_B[adapter].weight
        # One block of memory for all: moved as a whole in one sweep.
        flat = torch.cat([parameter.detach().flatten() for parameter in found.values()])
        parts = flat.split([parameter.numel() for parameter in found.values()])
        for parameter, part in zip(found.values(), parts, strict=True):
            parameter.data = part.view(parameter.shape)
            parameter.requires_grad_(True)
        self._flat[adapter] = flat
        return found

    def adapter(self, name: str) -> dict[str, nn.Parameter]:
        """Parameters of one adapter by name: A of shape (r, in) and B of shape (out, r)."""
        return self._parameters[name]

    @torch.no_grad()
    def blend_adapter(self, source: str, target: str, step: float = 1.0) -> None:
        """Move `target` towards `source`: target <- (1 - step) target + step source."""
        self._flat[target].lerp_(self._flat[source], step)
        self.adapter_changed(target)

    @torch.no_grad()
    def load_adapter(self, name: str, values: Mapping[str, Tensor]) -> None:
        """Set an adapter's parameters to `values`, named as `adapter` names them."""
        for key, parameter in self.adapter(name).items():
            parameter.copy_(values[key])
        self.adapter_changed(name)

    def adapter_changed(self, name: str) -> None:
        """Tell the backbone that an adapter's values moved, so that merged weights are rebuilt."""
        self._merged.pop(name, None)
        self._prepared.pop(name, None)

    @property
    def start_token(self) -> int | None:
        """First token of the decoder; None for a decoder-only model."""
        return self._model.config.decoder_start_token_id if self.is_encoder_decoder else None

    def reading(self, adapter: str) -> Callable[[Piece, Tensor], Tensor]:
        """Written-out pass with an adapter applied: (piece, nodes) to their last hidden states.

        Only for models that have a `reader`. The nodes, int64 (w,), must be all different; the
        states are float (w, width).
        """
        assert self.reader is not None
        reader, weights = self.reader, self._prepare(adapter)

        def read(piece: Piece, wanted: Tensor) -> Tensor:
            return reader.read(weights, piece, wanted)

        return read

    def _prepare(self, adapter: str) -> Any:
        """Weights as the reader takes them; kept while no gradient is wanted, or for its own."""
        assert self.reader is not None
        if isinstance(self.reader, CompiledLlama):
            if adapter not in self._prepared:
                if adapter not in self._adapted:
                    self._adapted[adapter] = self.reader.adapt(self._changes(adapter))
                self._prepared[adapter] = self.reader.prepare(self._adapted[adapter])
            return self._prepared[adapter]
        if torch.is_grad_enabled():
            return self.reader.prepare(self._merge(adapter))
        if adapter not in self._prepared:
            self._prepared[adapter] = self.reader.prepare(self._merge(adapter))
        return self._prepared[adapter]

    def hidden_states(
        self, adapter: str, tokens: Tensor, positions: Tensor, mask: Tensor
    ) -> Tensor:
        """Last hidden states of one pass of a decoder-only model.

        Args:
            adapter: which adapter is applied.
            tokens: int64 (batch, length).
            positions: int64 (batch, length), rotary or learned positions.
            mask: bool (batch, length, length), True where row i may attend to column j.

        Returns:
            float32 (batch, length, width).
        """
        bias = torch.zeros(mask.shape, dtype=self.dtype, device=self.device)
        bias.masked_fill_(~mask, torch.finfo(self.dtype).min)
        return self._run(
            "decoder",
            adapter,
            input_ids=tokens,
            position_ids=positions,
            attention_mask=bias[:, None],
        ).float()

    def encode(self, adapter: str, tokens: Tensor, mask: Tensor) -> Tensor:
        """Encoder states of prompts, in `dtype`; tokens int64 and mask bool (batch, length)."""
        return self._run("encoder", adapter, input_ids=tokens, attention_mask=mask.long())

    def decode(self, adapter: str, tokens: Tensor, encoded: Tensor, mask: Tensor) -> Tensor:
        """Last hidden states of the decoder reading start token + `tokens`.

        Args:
            tokens: int64 (batch, length), right-padded; padding never reaches an earlier token.
            encoded: (batch, prompt length, width), from `encode`.
            mask: bool (batch, prompt length).

        Returns:
            float32 (batch, length + 1, width): entry i has read the first i tokens.
        """
        start = tokens.new_full((len(tokens), 1), self._model.config.decoder_start_token_id)
        return self._run(
            "decoder",
            adapter,
            input_ids=torch.cat([start, tokens], dim=1),
            encoder_hidden_states=encoded,
            encoder_attention_mask=mask.long(),
        ).float()

    def plain_logits(self, head: list[int], tail: list[int]) -> Tensor:
        """Logits of each token of `tail` behind `head`, (tail, vocabulary), from an ordinary call.

        For checks; with the adapter that is active, which changes nothing while it is fresh.
        """
        if self.is_encoder_decoder:
            tokens = (
                self.tensor(np.array([head])),
                self.tensor(np.array([[self.start_token, *tail]])),
            )
            said = self._model(input_ids=tokens[0], decoder_input_ids=tokens[1])
            return said.logits[0, :-1]
        said = self._model(input_ids=self.tensor(np.array([head + tail])))
        return said.logits[0, len(head) - 1 : -1]

    def _run(self, part: str, adapter: str, **inputs: Tensor) -> Tensor:
        """Last hidden states of the encoder or the decoder with an adapter applied."""
        if self._plain is None:
            self._activate(adapter)
            return _part(self._model, part)(**inputs, **self._no_cache(part)).last_hidden_state
        body = _part(self._plain, part)
        prefix = self._prefixes[part]
        weights = {
            name.removeprefix(prefix): weight
            for name, weight in self._merged_weights(adapter).items()
            if name.startswith(prefix)
        }
        return functional_call(
            body, weights, kwargs={**inputs, **self._no_cache(part)}
        ).last_hidden_state

    @staticmethod
    def _no_cache(part: str) -> dict[str, bool]:
        return {"use_cache": False} if part == "decoder" else {}

    def token_embeddings(self) -> Tensor:
        """Output embedding of every token, float32 (vocabulary, width): logit = hidden . row."""
        weight = self._model.get_output_embeddings().weight.float()
        scaled = getattr(self._model.config, "scale_decoder_outputs", False)
        return weight * self.width**-0.5 if scaled else weight

    def _merged_weights(self, adapter: str) -> dict[str, Tensor]:
        """Weights W + (alpha / r) B A of the adapted layers; kept while no gradient is wanted."""
        if torch.is_grad_enabled():
            return self._merge(adapter)
        if adapter not in self._merged:
            self._merged[adapter] = self._merge(adapter)
        return self._merged[adapter]

    def _merge(self, adapter: str) -> dict[str, Tensor]:
        merged = {}
        for name, layer in self._layers.items():
            update = layer.lora_B[adapter].weight @ layer.lora_A[adapter].weight
            if layer.fan_in_fan_out:  # GPT-2 keeps its weights transposed
                update = update.T
            weight = torch.add(layer.base_layer.weight, update, alpha=layer.scaling[adapter])
            merged[f"{name}.weight"] = weight.to(self.dtype)
        return merged

    def _changes(self, adapter: str) -> dict[str, Change]:
        """What an adapter does to weights, by their names."""
        return {
            f"{name}.weight": Change(
                layer.lora_A[adapter].weight, layer.lora_B[adapter].weight, layer.scaling[adapter]
            )
            for name, layer in self._layers.items()
        }

    def _activate(self, adapter: str) -> None:
        """Switch adapters without losing the others' gradients (defect B2 of the released code)."""
        self._peft.set_adapter(adapter)
        for parameters in self._parameters.values():
            for parameter in parameters.values():
                parameter.requires_grad_(True)


def load_model(name: str, world: World | None = None) -> Loaded:
    """Load a frozen language model, decoder-only or encoder-decoder, and its tokenizer.

    Nothing is downloaded, unpickled, or run from the folder.

    world: whose texts it is to read; None: the default one.

    Raises:
        InputError: missing, or not a language model that `transformers` knows; weights that do not
            fill the model, are not finite, or have no row for a token of the tokenizer; a tokenizer
            that cannot tell texts of the world apart.
    """
    folder = check_backbone(name)
    try:
        with _without_reports(), older.readable(folder) as readable:
            model, loading, tokenizer = _load(name, readable)
    except Exception as error:  # what a broken folder raises is the library's choice
        if isinstance(error, InputError) or is_out_of_memory(error):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise unusable(name, f"cannot be loaded ({reason[:200]})") from error
    _check_keys(name, loading)
    return checked_model(name, model, tokenizer, world)


def _load(
    name: str, folder: Path
) -> tuple[PreTrainedModel, Mapping[str, Any], PreTrainedTokenizerBase]:
    """Model, what `transformers` says of its loading, and tokenizer."""
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    config = AutoConfig.from_pretrained(folder, **local)
    family = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    _check_size(name, folder, config, family)
    model, loading = family.from_pretrained(
        folder,
        **{FORMAT: torch.float32},
        # For sequences of some 40 tokens it is the fastest choice on a CPU.
        attn_implementation="eager",
        use_safetensors=True,
        ignore_mismatched_sizes=True,  # told below, in one line
        output_loading_info=True,
        **local,
    )
    return model, loading, AutoTokenizer.from_pretrained(folder, **local)


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """Tokenizer of a model, where the model itself is somewhere else."""
    with older.readable(check_backbone(name)) as folder:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def checked_model(
    name: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    world: World | None = None,
) -> Loaded:
    """The same model, frozen, after a look at its weights and at what its tokenizer makes of texts.

    Raises:
        InputError: as `load_model` says, but for weights that do not fill the model.
    """
    _check_loaded(name, model, tokenizer)
    _check_tokenizer(name, model, tokenizer, world or WORLDS[DEFAULT_WORLD])
    model.requires_grad_(False)
    return model.eval(), tokenizer


@contextmanager
def _without_reports() -> Iterator[None]:
    """Neither progress bars nor the table of keys that do not fit."""
    transformers_logging.disable_progress_bar()
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)


def _check_size(name: str, folder: Path, config: PretrainedConfig, family: Any) -> None:
    """A model far larger than its weights would be filled with random numbers before it is told."""
    with torch.device("meta"):  # shapes without memory
        wanted = sum(weight.numel() for weight in family.from_config(config).parameters())
    stored = number_of_weights(folder)
    if wanted > SIZE_FACTOR * stored + SIZE_MARGIN:
        raise unusable(
            name, f"has weights of {stored:,} numbers, its config.json asks for {wanted:,}"
        )


def _check_tokenizer(
    name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, world: World
) -> None:
    """The world's texts can be told apart, and the model reads the longest of them."""
    try:
        problem = texts.problem(tokenizer, world)
        ids = texts.longest(tokenizer, world)
        places = getattr(model.config, "max_position_embeddings", None)
        if problem is None and isinstance(places, int) and places < len(ids):
            problem = f"reads {places} tokens at most, a prompt with an action has {len(ids)}"
        if problem is None and ids and not _reads(model, ids):
            problem = "gives NaN or infinity for a prompt"
    except Exception as error:  # what a broken tokenizer raises is the library's choice
        if is_out_of_memory(error):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        problem = f"cannot read the world's texts ({reason[:200]})"
    if problem:
        raise unusable(name, problem)


@torch.no_grad()
def _reads(model: PreTrainedModel, ids: list[int]) -> bool:
    """Whether all logits of a text are finite."""
    tokens = torch.tensor([ids], device=model.device)
    more = {"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {}
    return bool(torch.isfinite(model.eval()(input_ids=tokens, **more).logits).all())


def _check_keys(name: str, loading: Mapping[str, Any]) -> None:
    """`transformers` fills gaps in the weights with random numbers; here they are errors."""
    for key, stored, wanted in sorted(loading["mismatched_keys"]):
        raise unusable(
            name, f"has weights of shape {tuple(stored)} for {key}, its config.json {tuple(wanted)}"
        )
    for key in sorted(loading["missing_keys"]):
        raise unusable(name, f"has no weights for {key}")


def _check_loaded(name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    for key, weight in model.state_dict().items():
        if not torch.isfinite(weight).all():
            raise unusable(name, f"has NaN or infinity in its weights for {key}")
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise unusable(name, f"has a vocabulary of {rows}, its tokenizer one of {len(tokenizer)}")


def unusable(name: str, problem: str) -> InputError:
    """What to raise for a model that cannot be used."""
    return InputError(
        f"backbone.model: {shown(name)} {problem}; allowed: a language model with weights and "
        "tokenizer in Hugging Face format"
    )


def _width(name: str, model: PreTrainedModel) -> int:
    width = getattr(model.config, "hidden_size", None)
    if not isinstance(width, int):
        raise unusable(name, "has no hidden_size in config.json")
    return width


@contextmanager
def _told(name: str) -> Iterator[None]:
    """What `peft` cannot adapt is a model that cannot be used."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise unusable(name, f"takes no adapters ({reason[:200]})") from error


def _part(model: PreTrainedModel, part: str) -> nn.Module:
    return model.get_encoder() if part == "encoder" else model.get_decoder()


def _attention_names(model: nn.Module) -> list[str]:
    """Names of the query and value projections (of the fused one where they are fused)."""
    names = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules()}
    for choice in (["q_proj", "v_proj"], ["q", "v"], ["query_key_value"], ["c_attn"]):
        if names.issuperset(choice):
            return choice
    raise InputError(
        "backbone.lora_targets: 'attention_qv' found no query and value layers in this model; "
        "allowed: all_linear"
    )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch's generator for initial values only, and give the old state back."""
    with torch.random.fork_rng(), warnings.catch_warnings():
        # peft reads an attribute that transformers 5 has renamed; nothing a user could mend.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        # GPT-2 keeps its weights transposed; peft finds out by itself, and says so.
        warnings.filterwarnings("ignore", "fan_in_fan_out is set to False", UserWarning)
        torch.manual_seed(seed)
        yield
