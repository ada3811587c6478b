"""How models are put into memory, as options; no llama.cpp, so that a command line can offer them at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import PurePath
from typing import Annotated, Any

from specli.errors import OptionError
from specli.options import Option, check

DEFAULT_CONTEXT = 4096
MAX_THREADS = 512  # llama.cpp ends the process beyond
CACHE_TYPES = ("f16", "bf16", "q8_0", "q4_0")
QUANTIZED = ("q8_0", "q4_0")
NO_DEVICES = ("none",)
MOST_SCALE = 1000.0  # of an adapter; far beyond, logits are no numbers

_CPU = "0 keeps the model on the CPU; leave it out to offload all."
# What changes the speed of passes or what they compute, beside what cost keys have always held.
_IN_COST_KEYS = ("cache_type_k", "cache_type_v", "override_tensor", "cpu_moe", "no_mmap", "flash_attention", "devices")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a pair of models is put into memory.

    Raises:
        OptionError: a value is out of its bounds, or two of them exclude each other.
    """

    context: Annotated[
        int | None,
        Option(
            f"Tokens that prompt and reply may have together. Default: {DEFAULT_CONTEXT}, if trained for it.",
            1,
            2**31 - 1,
            hint=f"{DEFAULT_CONTEXT} is the default.",
        ),
    ] = None
    batch: Annotated[int, Option("Tokens of the prompt read in one pass.", 1, 2**20)] = 512
    threads: Annotated[
        int | None,
        Option("CPU threads. Default: one for each core.", 1, MAX_THREADS, hint="Leave it out to use every core."),
    ] = None
    gpu_layers: Annotated[int | None, Option("Layers of the target on the GPU. Default: all.", 0, 2**20, hint=_CPU)] = (
        None
    )
    draft_gpu_layers: Annotated[
        int | None, Option("Layers of the draft model on the GPU. Default: all.", 0, 2**20, hint=_CPU)
    ] = None
    exact: Annotated[
        bool,
        Option(
            "Let the target compute the same bits in passes of any size, so that at temperature 0 the text is "
            "identical with and without a draft. CPU only, and slower."
        ),
    ] = False
    for_drafts: bool = False  # the model is fed token by token, and goes back by more than one pass
    lora: Annotated[
        tuple[tuple[str, float], ...],
        Option("LoRA adapter for the target, a .gguf file, and its scale; may be repeated. Default scale: 1."),
    ] = ()
    cache_type_k: Annotated[str, Option("Type of the target's cached keys.", choices=CACHE_TYPES)] = "f16"
    cache_type_v: Annotated[
        str, Option("Type of the target's cached values; q8_0 and q4_0 need flash attention.", choices=CACHE_TYPES)
    ] = "f16"
    flash_attention: Annotated[str, Option("Flash attention, of both models.", choices=("auto", "on", "off"))] = "auto"
    devices: Annotated[
        tuple[str, ...],
        Option("Devices for the layers of both models, as llama.cpp names them; none uses the CPU. Default: all."),
    ] = ()
    override_tensor: Annotated[
        tuple[tuple[str, str], ...],
        Option(
            "Keep the target's tensors whose name has the regular expression in this buffer, for instance CPU; may be "
            "repeated."
        ),
    ] = ()
    cpu_moe: Annotated[bool, Option("Keep the expert weights of the target on the CPU.")] = False
    no_mmap: Annotated[bool, Option("Read the models into memory instead of mapping the files.")] = False
    mlock: Annotated[bool, Option("Lock the models into memory, so that the system does not swap them out.")] = False

    def __post_init__(self) -> None:
        check(self)
        for name, kinds, example in (
            ("lora", (str, (int, float)), '("style.gguf", 1.0)'),
            ("override_tensor", (str, str), '("ffn_down", "CPU")'),
        ):
            for entry in getattr(self, name):
                if not (isinstance(entry, (tuple, list)) and len(entry) == 2 and _are(entry, kinds)):
                    message = f"`{name}` has {entry!r}, but each entry must be a pair such as {example}."
                    raise OptionError(message, "Leave it out to load the model as it is.", field=name)
        for path, scale in self.lora:
            if not abs(scale) <= MOST_SCALE:
                message = (
                    f"`lora` is {scale:g} for {path}, but a scale must be between {-MOST_SCALE:g} and {MOST_SCALE:g}."
                )
                raise OptionError(message, "1 is the default.", field="lora")
        if "none" in self.devices and tuple(self.devices) != NO_DEVICES:
            message = f"`devices` is {','.join(self.devices)!r}, but 'none' excludes all others."
            raise OptionError(message, "Leave out one of them.", field="devices")
        if self.flash_attention == "off":
            if self.cache_type_v in QUANTIZED:
                message = f"`cache_type_v` is {self.cache_type_v!r}, which needs flash attention, but it is off."
                raise OptionError(message, "Leave out `flash_attention`, or take f16 or bf16.", field="cache_type_v")
            if self.exact:
                message = "`exact` needs flash attention, but `flash_attention` is 'off'."
                raise OptionError(message, "Leave out one of them.", field="flash_attention")

    def for_draft(self) -> LoadOptions:
        """Return how the draft model is loaded beside a target with these options.

        It has no need of exact rows. Adapters, buffers and cache types are the target's alone, as in llama.cpp.
        """
        shared = replace(self, lora=(), cache_type_k="f16", cache_type_v="f16", override_tensor=(), cpu_moe=False)
        return replace(shared, gpu_layers=self.draft_gpu_layers, exact=False, for_drafts=True)

    @property
    def cost_part(self) -> str:
        """What sets the cost of passes apart from that without these options, as text: '' if nothing does."""
        changed = [(name, getattr(self, name)) for name in _IN_COST_KEYS if getattr(self, name) != _DEFAULTS[name]]
        return hashlib.sha256(repr(changed).encode()).hexdigest()[:16] if changed else ""

    @property
    def in_words(self) -> str:
        """What is unlike the usual way of loading, in words for reports: '' if nothing is."""
        return ", ".join(self._words())

    def _words(self) -> Iterator[str]:
        yield from (adapter_text(path, scale) for path, scale in self.lora)
        if (self.cache_type_k, self.cache_type_v) != ("f16", "f16"):
            yield f"cache {self.cache_type_k} and {self.cache_type_v}"
        if self.flash_attention != "auto":
            yield f"flash attention {self.flash_attention}"
        if self.devices:
            yield f"devices {','.join(self.devices)}"
        yield from (f"{pattern} in {buffer}" for pattern, buffer in self.override_tensor)
        if self.cpu_moe:
            yield "experts on the CPU"
        if self.no_mmap:
            yield "no memory map"
        if self.mlock:
            yield "locked in memory"


def _are(entry: Sequence[Any], kinds: Sequence[Any]) -> bool:
    return all(isinstance(one, kind) for one, kind in zip(entry, kinds, strict=True))


def adapter_text(path: str, scale: float) -> str:
    """Return an adapter in words."""
    return f"LoRA {PurePath(path).name}" + ("" if scale == 1 else f" at {scale:g}")


_DEFAULTS = {field.name: field.default for field in fields(LoadOptions)}
