"""A language model from `transformers` with named LoRA adapters from `peft`.

Four adapters live on one frozen backbone (Gaven et al. 2025, section 4): `policy` (shared by actor
and critic), `critic_target`, `competence` and its delayed copy `competence_delayed`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
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

from magellan.core.codec import PADDING
from magellan.core.errors import InputError
from magellan.fastpath import fast_forward
from magellan.model.devices import CPU, check_format, find_device
from magellan.model.fused import FusedAdapters, fuse, is_fused
from magellan.model.loading import Loaded, check_four_bits, load_model, reported, unusable, width_of
from magellan.model.packing import PAIR, PackedBatch
from magellan.model.settings import AUTO, BackboneConfig, BackendConfig, check_together
from magellan.worlds import World


def repeated_layers(stack: nn.Module) -> list[nn.Module]:
    """The layers of an encoder or a decoder: its first `ModuleList`, if any."""
    lists = (child for child in stack.children() if isinstance(child, nn.ModuleList))
    return list(next(lists, ()))


def checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A layer that stores only its input and recomputes the rest in the backward pass.

    The gradients are the same to the last bit.
    """

    def forward_again(*inputs: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs, **named)
        # Models are in evaluation mode, without dropout: there is no random state to preserve.
        return checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=False, **named)

    return forward_again


ADAPTERS = ("policy", "critic_target", "competence", "competence_delayed")
GPU_BUCKET = 16
"""Lengths of padded batches on a GPU are multiples of this."""
LINEAR = (nn.Linear, Conv1D)


class Backbone:
    """A frozen language model with four LoRA adapters.

    Args:
        config: which model, and the shape of the adapters.
        seed: seed of the adapters' initial values (A Kaiming uniform, B zero).
        world: whose texts it reads; None: the default one.
        backend: device, number format, micro-batches; None: the defaults.
        loaded: model and tokenizer that are already loaded (`checked_model`); None: load them from
            the model's folder.

    Attributes:
        fast_pass: the written-out pass; None where `transformers` reads.
        passes: implementation of the passes, as text.
        device: of its weights, inputs and outputs.
        dtype: of the frozen weights; adapters and outputs have float32.
        reads_pairs: whether a pass can read by `PAIR`.
        micro_batch: states per pass of an update where `transformers` reads; 0: all.
        sizes_itself: whether `micro_batch` has to be chosen by the free memory.

    Raises:
        InputError: the model is missing, or cannot be loaded or read as configured.
    """

    nonstationary = False  # see `Backend`

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
        self._bucket = 1 if self.device == CPU else GPU_BUCKET
        four_bits = None if config.quantization == "none" else self.dtype
        model, self.tokenizer = loaded or load_model(config.model, world, self.device, four_bits)
        self.width: int = width_of(config.model, model)
        local = "local" in getattr(model.config, "attention_layers", ())
        self._most_tokens = model.config.window_size if local else None
        self.is_encoder_decoder: bool = model.config.is_encoder_decoder
        # Experts with a capacity per sequence must not see all candidates in one sequence.
        relative = hasattr(model.config, "relative_attention_num_buckets")
        self._relative_positions = relative and not hasattr(model.config, "expert_capacity")
        self._plain = copy.deepcopy(model) if config.lora_mode == "merged" else None
        with _seeded(seed), reported(config.model, "takes no adapters"):
            self._peft = get_peft_model(model, self._lora(model), adapter_name=ADAPTERS[0])
            # Older versions of peft would also match the layers of the first adapter.
            layers = self._peft.peft_config[ADAPTERS[0]].target_modules
            for name in ADAPTERS[1:]:
                self._peft.add_adapter(name, self._lora(model, layers))
        self._model: PreTrainedModel = self._peft.base_model.model
        self._move_weights()
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
        self._prepared: dict[str, Any] = {}
        self.fast_pass, self.passes = self._choose_reader()
        whole = self._plain is None and config.quantization == "none"
        self.reads_pairs = whole and is_fused(self._model)
        self._fused = self._fuse()
        self._flat: dict[str, Tensor] = {}
        self._active = ""
        self._parameters = {name: self._collect(name) for name in ADAPTERS}
        self._change_layers(backend)

    @property
    def _is_float32_on_cpu(self) -> bool:
        """Whether weights are float32 on the CPU, which written-out passes require."""
        return self.device == CPU and self.dtype == torch.float32

    def _move_weights(self) -> None:
        """Move all weights to the device, and cast the frozen ones to `dtype`."""
        if self._is_float32_on_cpu:
            return
        for model in filter(None, (self._peft, self._plain)):
            for name, weight in model.named_parameters():
                if "lora_" not in name and weight.is_floating_point():  # false in 4 bits
                    weight.data = weight.data.to(self.dtype)
            if self.config.quantization == "none":  # else it is there already
                model.to(self.device)

    def _fuse(self) -> FusedAdapters | None:
        """Fuse the modules that read; returns fused adapters, None where none are."""
        if self.fast_pass is not None or self.config.quantization != "none":
            return None
        fused = fuse(self._model if self._plain is None else self._plain, self._plain is None)
        return fused if fused.layers else None

    def _change_layers(self, backend: BackendConfig) -> None:
        """Apply checkpointing and mixed precision to the layers of `transformers`."""
        if backend.gradient_checkpointing:
            for part in self._prefixes:
                for layer in repeated_layers(_part(self._model, part)):
                    layer.forward = checkpointed(layer.forward)
        if self.dtype == torch.bfloat16:
            for adapted in self._layers.values():
                # Autocast would narrow the input again; the float32 copy would only take memory.
                adapted.cast_input_dtype_enabled = False

    def _autocast(self) -> torch.autocast:
        """Products in bfloat16, including those with the float32 adapters; norms in float32."""
        enabled = self.dtype == torch.bfloat16 and not self.reads_pairs
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled)

    def _choose_reader(self) -> tuple[Any, str]:
        """The written-out pass, or None for `transformers`, and its name for logs."""
        passes = self.config.passes
        if self._plain is not None and self._is_float32_on_cpu:
            return fast_forward(self._plain, passes, self.config.lora_layers, self._room)
        if passes == "compiled":
            key, value = next(
                (key, value)
                for key, value, required in (
                    ("backbone.lora_mode", self.config.lora_mode, "merged"),
                    ("backend.device", self.device.type, "cpu"),
                    ("backend.dtype", str(self.dtype).removeprefix("torch."), "float32"),
                )
                if value != required
            )
            raise InputError(
                f"backbone.passes: 'compiled' is not for {key} {value!r}; allowed: auto, torch"
            )
        return None, "transformers"

    def tensor(self, values: np.ndarray) -> Tensor:
        """Convert an array to a tensor on this backbone's device."""
        return torch.from_numpy(values).to(self.device)

    def batch(self, tokens: np.ndarray, segments: np.ndarray) -> PackedBatch:
        """A batch of packed states, (batch, length) each, on this backbone's device.

        Raises:
            InputError: a state is longer than GPT-Neo's local attention, which counts places in it.
        """
        most = self._most_tokens
        if most is not None and (length := int((segments != PADDING).sum(axis=1).max())) > most:
            problem = f"reads {most} tokens at most, a prompt with all its actions has {length}"
            raise unusable(self.config.model, problem)
        return PackedBatch(tokens, segments, self.device, self._bucket)

    def _lora(self, model: PreTrainedModel, layers: Collection[str] = ()) -> LoraConfig:
        if layers:
            targets = sorted(layers)
        elif self.config.lora_targets == "attention_qv":
            targets = _attention_names(_part(model, "decoder"))
        else:  # by name, as peft's "all-linear" gives experts adapters of another kind
            head = model.get_output_embeddings()
            targets = [
                name
                for name, module in model.named_modules()
                if isinstance(module, LINEAR) and module is not head
            ]
        sees = hasattr(model.config, "text_config")  # what reads pictures gets no adapters
        if (self.config.lora_layers or sees) and not layers:
            targets = self._targets_in_last_layers(model, targets)
        return LoraConfig(
            r=self.config.lora_rank,
            lora_alpha=self.config.lora_alpha,
            lora_dropout=0.0,
            target_modules=targets,
            task_type="SEQ_2_SEQ_LM" if self.is_encoder_decoder else "CAUSAL_LM",
        )

    def _targets_in_last_layers(self, model: PreTrainedModel, targets: list[str]) -> list[str]:
        """Full names of the modules that carry adapters in the last `lora_layers` of each part."""
        names = {id(module): name for name, module in model.named_modules()}
        full_names = []
        for part in ("encoder", "decoder") if self.is_encoder_decoder else ("decoder",):
            layers = repeated_layers(_part(model, part))
            number = self.config.lora_layers or len(layers)
            if number > len(layers):
                raise InputError(
                    f"backbone.lora_layers: {number} is more than the {len(layers)} layers of "
                    f"{self.config.model!r}; allowed: 0 (all) to {len(layers)}"
                )
            for layer in layers[-number:]:
                for name, module in layer.named_modules():
                    full = names[id(module)]
                    wanted = full in targets or name.rsplit(".", 1)[-1] in targets
                    if isinstance(module, LINEAR) and wanted:
                        full_names.append(full)
        return full_names

    def _collect(self, adapter: str) -> dict[str, nn.Parameter]:
        parameters = {}
        for name, layer in self._layers.items():
            parameters[f"{name}.lora_A"] = layer.lora_A[adapter].weight
            parameters[f"{name}.lora_B"] = layer.lora_B[adapter].weight
        # All in one block of memory, so that `blend_adapter` is a single operation.
        ordered = self._in_order(parameters)
        flat = torch.cat([parameter.detach().flatten() for parameter in ordered])
        views = flat.split([parameter.numel() for parameter in ordered])
        for parameter, view in zip(ordered, views, strict=True):
            parameter.data = view.view(parameter.shape)
            parameter.requires_grad_(True)
        self._flat[adapter] = flat
        return parameters

    def _in_order(self, parameters: Mapping[str, nn.Parameter]) -> list[nn.Parameter]:
        """Parameters of an adapter as `FusedAdapters.prepare` takes them."""
        names = {layer: name for name, layer in self._layers.items()}
        fused = [] if self._fused is None else self._fused.layers
        first = [
            f"{names[layer]}.{part}"
            for layers in fused
            for part in ("lora_A", "lora_B")
            for layer in layers
        ]
        return [parameters[key] for key in dict.fromkeys([*first, *parameters])]

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
        """Drop cached weights with an adapter after its values have changed."""
        for key in (name, PAIR):
            self._prepared.pop(key, None)

    @property
    def start_token(self) -> int | None:
        """First token of the decoder; None for a decoder-only model."""
        return self._model.config.decoder_start_token_id if self.is_encoder_decoder else None

    def weights(self, adapter: str) -> Any:
        """Weights with an adapter, for the reader, else for fused layers or `functional_call`.

        Cached, except merged ones that need gradients by autograd.
        """
        tracked = torch.is_grad_enabled() and not self._own_backward
        if tracked and self._fused is None:
            return self._prepare(adapter)
        cached = self._prepared.get(adapter)
        if cached is None or (tracked and not cached[0][0].requires_grad):
            cached = self._prepared[adapter] = self._prepare(adapter)
        return cached

    def _prepare(self, adapter: str) -> Any:
        if self._own_backward:
            return self.fast_pass.prepare(self._low_rank_changes(adapter))
        if self._fused is not None:
            first, *others = adapter.split()
            block = self._flat[first]
            if others:
                block = torch.stack([block, *(self._flat[name] for name in others)])
            parameters = self._in_order(self._parameters[first])
            return self._fused.prepare(block, parameters, self.dtype)
        merged = self._merge(adapter)
        return merged if self.fast_pass is None else self.fast_pass.prepare(merged)

    def hidden_states(
        self, adapter: str, tokens: Tensor, positions: Tensor, mask: Tensor
    ) -> Tensor:
        """Last hidden states of one pass of a decoder-only model.

        Args:
            adapter: name of the adapter.
            tokens: int64 (batch, length).
            positions: int64 (batch, length), rotary or learned positions.
            mask: bool (batch, length, length), True where row i may attend to column j.

        Returns:
            float32 (batch, length, width).
        """
        bias = _attention_bias(mask, self.dtype)[:, None]
        inputs = {"input_ids": tokens, "position_ids": positions, "attention_mask": bias}
        return self._run("decoder", adapter, **inputs).float()

    def encode(self, adapter: str, tokens: Tensor, mask: Tensor) -> Tensor:
        """Encoder states of prompts, in `dtype`; tokens int64 and mask bool (batch, length)."""
        return self._run("encoder", adapter, input_ids=tokens, attention_mask=mask.long())

    def decode(
        self, adapter: str, tokens: Tensor, exists: Tensor, encoded: Tensor, mask: Tensor
    ) -> Tensor:
        """Last hidden states of the decoder for start token + each candidate of each prompt.

        With relative positions (T5 and similar models) the candidates of a prompt are one sequence
        in which they do not see each other: the cross-attention then projects a prompt's keys and
        values once, not once per candidate.

        Args:
            adapter: name of the adapter.
            tokens: int64 (batch, candidates, length), right-padded; padding never reaches an
                earlier token.
            exists: bool (batch, candidates), whether the candidate exists.
            encoded: (batch, prompt length, width), from `encode`.
            mask: bool (batch, prompt length).

        Returns:
            float32 (batch, candidates, length + 1, width): entry i follows the first i tokens of a
            candidate. Undefined for candidates that do not exist.
        """
        tokens = nn.functional.pad(tokens, (1, 0), value=self.start_token)
        inputs = {"encoder_hidden_states": encoded, "encoder_attention_mask": mask.long()}
        if self._relative_positions:
            _, candidates, length = tokens.shape
            causal = torch.ones(length, length, dtype=torch.bool, device=self.device).tril()
            visible = torch.block_diag(*[causal] * candidates) > 0
            inputs["attention_mask"] = _attention_bias(visible, self.dtype)[None, None]
            hidden = self._run("decoder", adapter, input_ids=tokens.flatten(1), **inputs)
            return hidden.float().view(*tokens.shape, -1)
        owner = exists.nonzero()[:, 0]
        inputs = {name: value.index_select(0, owner) for name, value in inputs.items()}
        hidden = self._run("decoder", adapter, input_ids=tokens[exists], **inputs).float()
        number = (exists.flatten().cumsum(0) - 1).clamp(min=0)  # candidate -> its row in `hidden`
        return hidden.index_select(0, number).view(*tokens.shape, -1)

    def plain_logits(self, head: list[int], tail: list[int]) -> Tensor:
        """Logits of each token of `tail` after `head`, (tail, vocabulary), from an ordinary call.

        For checks; uses the active adapter, which changes nothing before its first update.
        """
        texts, first = {"input_ids": head + tail}, len(head) - 1
        if self.start_token is not None:
            texts, first = {"input_ids": head, "decoder_input_ids": [self.start_token, *tail]}, 0
        inputs = {name: self.tensor(np.array([tokens])) for name, tokens in texts.items()}
        with self._autocast():
            return self._model(**inputs).logits[0, first:-1]

    def _run(self, part: str, adapter: str, **inputs: Tensor) -> Tensor:
        """Last hidden states of the encoder or the decoder with an adapter applied."""
        arguments: dict[str, Any] = {**inputs}
        if part == "decoder":
            arguments["use_cache"] = False
        with self._autocast():
            if self._plain is None:
                self._activate(adapter)
                return _part(self._model, part)(**arguments).last_hidden_state
            prefix = self._prefixes[part]
            weights = {
                name.removeprefix(prefix): weight
                for name, weight in self.weights(adapter).items()
                if name.startswith(prefix)
            }
            module = _part(self._plain, part)
            return functional_call(module, weights, kwargs=arguments).last_hidden_state

    def token_embeddings(self, tokens: Tensor | None = None) -> Tensor:
        """Output embeddings, float32: logit = hidden . row.

        Args:
            tokens: int64 (n,), whose rows to return; None: the whole vocabulary.

        Returns:
            (n, width), or (vocabulary, width).
        """
        weight = self._model.get_output_embeddings().weight
        rows = (weight if tokens is None else weight.index_select(0, tokens)).float()
        scaled = getattr(self._model.config, "scale_decoder_outputs", False)
        return rows * self.width**-0.5 if scaled else rows

    def _merge(self, adapter: str) -> dict[str, Tensor]:
        """Weights W + (alpha / r) B A of the adapted layers."""
        merged = {}
        for name, layer in self._layers.items():
            update = layer.lora_B[adapter].weight @ layer.lora_A[adapter].weight
            if layer.fan_in_fan_out:  # GPT-2 stores its weights transposed
                update = update.T
            weight = torch.add(layer.base_layer.weight, update, alpha=layer.scaling[adapter])
            merged[f"{name}.weight"] = weight.to(self.dtype)
        return merged

    def _low_rank_changes(self, adapter: str) -> dict[str, tuple[Tensor, Tensor, float]]:
        """A, B and scaling of an adapter by the names of the weights."""
        return {
            f"{name}.weight": (
                *(matrix[adapter].weight for matrix in (layer.lora_A, layer.lora_B)),
                layer.scaling[adapter],
            )
            for name, layer in self._layers.items()
        }

    @property
    def _own_backward(self) -> bool:
        """Whether the written-out pass computes gradients itself."""
        return self.fast_pass is not None and self.fast_pass.own_backward

    def _activate(self, adapter: str) -> None:
        """Switch adapters without losing the others' gradients (defect B2 of the released code)."""
        if self._fused is not None:
            self._fused.values = self.weights(adapter)
        if adapter in (self._active, PAIR):
            return
        for layer in self._layers.values():  # peft would look for them in the whole model
            layer.set_adapter(adapter)
        for parameters in self._parameters.values():
            for parameter in parameters.values():
                parameter.requires_grad_(True)
        self._active = adapter


def _attention_bias(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a place is visible, else the lowest number."""
    bias = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return bias.masked_fill_(~visible, torch.finfo(dtype).min)


def _part(model: PreTrainedModel, part: str) -> nn.Module:
    return model.get_encoder() if part == "encoder" else model.get_decoder()


def _attention_names(model: nn.Module) -> list[str]:
    """Names of the query and value projections, or of the fused projection."""
    names = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules()}
    for projections in (["q_proj", "v_proj"], ["q", "v"], ["query_key_value"], ["c_attn"]):
        if names.issuperset(projections):
            return projections
    raise InputError(
        "backbone.lora_targets: 'attention_qv' found no query and value layers in this model; "
        "allowed: all_linear"
    )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch's generator for initial values only, and restore its state."""
    # Initial values are drawn on the CPU: no GPU is touched.
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # peft reads an attribute that transformers 5 has renamed; users can do nothing about it.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        # GPT-2 stores its weights transposed; peft detects it and warns.
        warnings.filterwarnings("ignore", "fan_in_fan_out is set to False", UserWarning)
        torch.default_generator.manual_seed(seed)
        yield
