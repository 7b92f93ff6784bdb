"""A language model from `transformers` with named LoRA adapters from `peft`.

Four adapters live on one frozen backbone (Gaven et al. 2025, section 4): `policy` (shared by actor
and critic), `critic_target`, `competence` and its delayed copy `competence_delayed`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from magellan.core.errors import InputError
from magellan.fastpath import Adapted, Change, CompiledLlama, Reader, written_out_pass
from magellan.model.devices import CPU, check_format, find_device
from magellan.model.loading import Loaded, check_four_bits, load_model, unusable, width_of
from magellan.model.packing import PackedBatch, Piece
from magellan.model.settings import AUTO, BackboneConfig, BackendConfig, check_together
from magellan.worlds import World

COMPILER = "inductor"
SHAPES = 64
"""Programs that PyTorch may compile of one layer: adapters, with and without gradients, lengths."""


def repeated_layers(stack: nn.Module) -> list[nn.Module]:
    """The layers of an encoder or a decoder: its first list of modules; none where it has none."""
    lists = (each for each in stack.children() if isinstance(each, nn.ModuleList))
    return list(next(lists, ()))


def recomputed(layers: Iterable[nn.Module]) -> None:
    """Let each layer keep its input only, and compute the rest again for the gradients.

    The same operations on the same numbers, so the gradients are the same to the last bit.
    """
    for layer in layers:
        layer.forward = _twice(layer.forward)


def _twice(forward: Callable[..., Any]) -> Callable[..., Any]:
    def forward_twice(*inputs: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs, **named)
        # Models are in evaluation mode: nothing is drawn, so no generator has to be put back.
        return checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=False, **named)

    return forward_twice


def compiled(layers: Iterable[nn.Module]) -> None:
    """Let PyTorch compile each layer when it is first called."""
    torch._dynamo.config.recompile_limit = SHAPES
    for layer in layers:
        layer.compile(backend=COMPILER)


ADAPTERS = ("policy", "critic_target", "competence", "competence_delayed")
GPU_BUCKET = 16
"""Tokens: padded batches on a GPU are as long as a multiple of it."""


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
        micro_batch: states per pass of an update where `transformers` reads; 0: all.
        sizes_itself: whether `micro_batch` is to be chosen from the free memory.

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
        check_together(config, backend)
        check_four_bits(config.quantization)
        self.config = config
        self.device = find_device(backend.device)
        check_format(self.device, backend.dtype)
        self.dtype: torch.dtype = getattr(torch, backend.dtype)
        self.sizes_itself = backend.micro_batch == AUTO
        self.micro_batch = 0 if backend.micro_batch == AUTO else backend.micro_batch
        self._room = backend.kept_states_mb * 10**6
        self._bucket = backend.length_bucket or (1 if self.device == CPU else GPU_BUCKET)
        four_bits = None if config.quantization == "none" else self.dtype
        model, self.tokenizer = loaded or load_model(config.model, world, self.device, four_bits)
        self.width: int = width_of(config.model, model)
        self.is_encoder_decoder: bool = model.config.is_encoder_decoder
        # Experts that take so many tokens of each sequence must not see candidates in one.
        relative = hasattr(model.config, "relative_attention_num_buckets")
        self._relative_positions = relative and not hasattr(model.config, "expert_capacity")
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
        self._change_layers(backend)

    def stacks(self) -> dict[str, nn.Module]:
        """`decoder`, and `encoder` where there is one, with their adapters."""
        return {part: _part(self._model, part) for part in self._prefixes}

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
                if "lora_" not in name and weight.is_floating_point():  # not those in 4 bits
                    weight.data = weight.data.to(self.dtype)
            if self.config.quantization == "none":  # else it is there already
                model.to(self.device)

    def _change_layers(self, backend: BackendConfig) -> None:
        """What is asked of the layers of `transformers` beyond what they do by themselves."""
        for stack in self.stacks().values():
            layers = repeated_layers(stack)
            if backend.gradient_checkpointing:
                recomputed(layers)
            if backend.compile:
                compiled(layers)
        if self.dtype == torch.bfloat16:
            for layer in self._layers.values():
                # What autocast narrows anyway is not widened, and kept, before.
                layer.cast_input_dtype_enabled = False

    def _narrowed(self) -> torch.autocast:
        """Products in bfloat16, those with the float32 adapters too; sums of norms in float32."""
        half = self.dtype == torch.bfloat16
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=half)

    def _reader(self) -> tuple[Reader | None, str]:
        """What reads states, None for the library's modules, and its name for logs."""
        wanted = self.config.passes
        if self._plain is not None and self._as_loaded:
            return written_out_pass(self._plain, wanted, self.config.lora_layers, self._room)
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
        return PackedBatch(tokens, segments, self.device, self._bucket)

    def _lora(self, model: PreTrainedModel, layers: Collection[str] = ()) -> LoraConfig:
        targets: str | list[str] = "all-linear"
        if layers:
            targets = sorted(layers)
        elif self.config.lora_targets == "attention_qv":
            targets = _attention_names(model)
        if self.config.lora_layers and not layers:
            targets = self._of_last_layers(model, targets)
        return LoraConfig(
            r=self.config.lora_rank,
            lora_alpha=self.config.lora_alpha,
            lora_dropout=0.0,
            target_modules=targets,
            task_type="SEQ_2_SEQ_LM" if self.is_encoder_decoder else "CAUSAL_LM",
        )

    def _of_last_layers(self, model: PreTrainedModel, targets: str | list[str]) -> list[str]:
        """Full names of the linear modules that carry adapters in the last layers of each part."""
        wanted = self.config.lora_layers
        names = {id(module): name for name, module in model.named_modules()}
        found = []
        for part in ("encoder", "decoder") if self.is_encoder_decoder else ("decoder",):
            layers = repeated_layers(_part(model, part))
            if wanted > len(layers):
                raise InputError(
                    f"backbone.lora_layers: {wanted} is more than the {len(layers)} layers of "
                    f"{self.config.model!r}; allowed: 0 (all) to {len(layers)}"
                )
            for layer in layers[-wanted:]:
                for name, module in layer.named_modules():
                    if isinstance(module, (nn.Linear, Conv1D)) and (
                        targets == "all-linear" or name.rsplit(".", 1)[-1] in targets
                    ):
                        found.append(names[id(module)])
        return found

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

    def decode(
        self, adapter: str, tokens: Tensor, exists: Tensor, encoded: Tensor, mask: Tensor
    ) -> Tensor:
        """Last hidden states of the decoder reading start token + each candidate of each prompt.

        Where positions are relative (T5 and its kin) the candidates of a prompt go through the
        decoder as one sequence, each blind to the others: the cross-attention then projects a
        prompt's keys and values once, not once for each candidate.

        Args:
            adapter: which adapter is applied.
            tokens: int64 (batch, candidates, length), right-padded; padding never reaches an
                earlier token.
            exists: bool (batch, candidates), whether there is such a candidate.
            encoded: (batch, prompt length, width), from `encode`.
            mask: bool (batch, prompt length).

        Returns:
            float32 (batch, candidates, length + 1, width): entry i of a candidate has read its
            first i tokens. Undefined for candidates that do not exist.
        """
        start = self._model.config.decoder_start_token_id
        tokens = nn.functional.pad(tokens, (1, 0), value=start)
        inputs = {"encoder_hidden_states": encoded, "encoder_attention_mask": mask.long()}
        if self._relative_positions:
            _, candidates, length = tokens.shape
            together = _blind_to_others(candidates, length, self.dtype, self.device)  # for all rows
            hidden = self._run(
                "decoder",
                adapter,
                input_ids=tokens.flatten(1),
                attention_mask=together,
                **inputs,
            )
            return hidden.float().view(*tokens.shape, -1)
        owner = exists.nonzero()[:, 0]
        inputs = {name: value.index_select(0, owner) for name, value in inputs.items()}
        hidden = self._run("decoder", adapter, input_ids=tokens[exists], **inputs).float()
        number = (exists.flatten().cumsum(0) - 1).clamp(min=0)  # candidate -> its row in `hidden`
        return hidden.index_select(0, number).view(*tokens.shape, -1)

    def plain_logits(self, head: list[int], tail: list[int]) -> Tensor:
        """Logits of each token of `tail` behind `head`, (tail, vocabulary), from an ordinary call.

        For checks; with the adapter that is active, which changes nothing while it is fresh.
        """
        if self.is_encoder_decoder:
            tokens = (
                self.tensor(np.array([head])),
                self.tensor(np.array([[self.start_token, *tail]])),
            )
            with self._narrowed():
                said = self._model(input_ids=tokens[0], decoder_input_ids=tokens[1])
            return said.logits[0, :-1]
        with self._narrowed():
            said = self._model(input_ids=self.tensor(np.array([head + tail])))
        return said.logits[0, len(head) - 1 : -1]

    def _run(self, part: str, adapter: str, **inputs: Tensor) -> Tensor:
        """Last hidden states of the encoder or the decoder with an adapter applied."""
        with self._narrowed():
            return self._read_by(part, adapter, **inputs)

    def _read_by(self, part: str, adapter: str, **inputs: Tensor) -> Tensor:
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

    def token_embeddings(self, tokens: Tensor | None = None) -> Tensor:
        """Output embeddings, float32: logit = hidden . row.

        Args:
            tokens: int64 (n,), whose rows are wanted; None: those of the whole vocabulary.

        Returns:
            (n, width), or (vocabulary, width).
        """
        weight = self._model.get_output_embeddings().weight
        rows = (weight if tokens is None else weight.index_select(0, tokens)).float()
        scaled = getattr(self._model.config, "scale_decoder_outputs", False)
        return rows * self.width**-0.5 if scaled else rows

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


def _blind_to_others(
    candidates: int, length: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Bias of attention, (1, 1, candidates * length, the same): 0 for a candidate's own tokens up
    to a token, the lowest number for later ones and for those of other candidates."""
    own = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    seen = torch.block_diag(*[own] * candidates) > 0
    bias = torch.zeros(seen.shape, dtype=dtype, device=device)
    return bias.masked_fill_(~seen, torch.finfo(dtype).min)[None, None]


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
    # Initial values are drawn on the CPU: no GPU is touched, least of all those of other runs.
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # peft reads an attribute that transformers 5 has renamed; nothing a user could mend.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        # GPT-2 keeps its weights transposed; peft finds out by itself, and says so.
        warnings.filterwarnings("ignore", "fan_in_fan_out is set to False", UserWarning)
        torch.default_generator.manual_seed(seed)
        yield
