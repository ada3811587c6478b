"""Where weights go: devices, and buffers for single tensors, by the names that llama.cpp gives them.

The bindings have none of these functions; they are looked up in the library that is loaded already.
"""

from __future__ import annotations

import ctypes
import re
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

from specli.errors import OptionError
from specli.llama.binding import library_function
from specli.llama.gguf import GgufFile
from specli.llama.options import NO_DEVICES, LoadOptions

# What llama.cpp's --cpu-moe stands for.
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
_CPU_DEVICE = 0

# ggml's functions: result and arguments.
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "ggml_backend_dev_count": (ctypes.c_size_t, []),
    "ggml_backend_dev_get": (ctypes.c_void_p, [ctypes.c_size_t]),
    "ggml_backend_dev_name": (ctypes.c_char_p, [ctypes.c_void_p]),
    "ggml_backend_dev_type": (ctypes.c_int, [ctypes.c_void_p]),
    "ggml_backend_dev_buffer_type": (ctypes.c_void_p, [ctypes.c_void_p]),
    "ggml_backend_buft_name": (ctypes.c_char_p, [ctypes.c_void_p]),
}


class _Override(ctypes.Structure):
    """llama_model_tensor_buft_override."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer", ctypes.c_void_p))


@cache
def _function(name: str) -> Any:
    return library_function(name, *_FUNCTIONS[name])


def _all_devices() -> list[int]:
    count = _function("ggml_backend_dev_count")()
    return [_function("ggml_backend_dev_get")(number) for number in range(count)]


def _devices() -> dict[str, int]:
    """Return the devices that layers can go to, by name; the CPU is none of them."""
    kind, name = _function("ggml_backend_dev_type"), _function("ggml_backend_dev_name")
    return {name(one).decode(): one for one in _all_devices() if kind(one) != _CPU_DEVICE}


def _buffers() -> dict[str, int]:
    """Return the types of buffers that tensors can be kept in, by name."""
    buffers = filter(None, map(_function("ggml_backend_dev_buffer_type"), _all_devices()))
    return {_function("ggml_backend_buft_name")(one).decode(): one for one in buffers}


def require_devices(options: LoadOptions) -> None:
    """Refuse devices and buffers that this machine does not have.

    Raises:
        OptionError: the options name one, or a pattern is no regular expression.
    """
    if options.devices and tuple(options.devices) != NO_DEVICES:
        _require_known("devices", options.devices, _devices(), "devices", "'none' uses the CPU alone.")
    if options.override_tensor:
        buffers = [buffer for _, buffer in options.override_tensor]
        _require_known("override_tensor", buffers, _buffers(), "buffers", "CPU is there on every machine.")
        for pattern, _ in options.override_tensor:
            _compiled(pattern)


def _require_known(field: str, names: Sequence[str], known: dict[str, int], kind: str, hint: str) -> None:
    if unknown := [name for name in names if name not in known]:
        there = f"this llama.cpp has the {kind} {', '.join(known)}" if known else f"this llama.cpp has no {kind}"
        raise OptionError(f"`{field}` names {unknown[0]!r}, but {there}.", hint, field=field)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what Python reads otherwise than llama.cpp, as [[:alpha:]]
            compiled = re.compile(pattern)
        if not pattern or "\0" in pattern:
            raise ValueError("it is empty" if not pattern else "it has a zero byte")
        pattern.encode()
    except (re.error, ValueError, OverflowError, RecursionError, Warning) as error:
        message = f"`override_tensor` has {pattern!r}, which is no regular expression that can be used: {error}."
        raise OptionError(message, r"For instance 'blk\.0\.ffn_.*=CPU'.", field="override_tensor") from None
    return compiled


def require_tensors(file: GgufFile, options: LoadOptions) -> None:
    """Refuse overrides that no tensor of a model has anything to do with: they would be without effect.

    Raises:
        OptionError: there is one.
    """
    chosen = [("override_tensor", pattern, f"'{pattern}' matches no") for pattern, _ in options.override_tensor]
    if options.cpu_moe:
        chosen.append(("cpu_moe", EXPERTS, "there is no expert"))
    for field, pattern, what in chosen:
        if not any(map(_compiled(pattern).search, file.tensors)):
            hint = "Names are like blk.0.ffn_down.weight." if field == "override_tensor" else "Leave it out."
            raise OptionError(f"`{field}`: {what} tensor of {file.path.name}.", hint, field=field)


def device_array(options: LoadOptions) -> Any:
    """Return llama.cpp's list of devices, None for all; it must be kept until the model is loaded."""
    if not options.devices:
        return None
    known = _devices()
    chosen = [known[name] for name in options.devices if tuple(options.devices) != NO_DEVICES]
    return (ctypes.c_void_p * (len(chosen) + 1))(*chosen, None)


def override_array(options: LoadOptions) -> Any:
    """Return llama.cpp's list of buffers for tensors, None if there are none; to be kept like that of devices."""
    chosen = [*options.override_tensor, *([(EXPERTS, "CPU")] if options.cpu_moe else [])]
    if not chosen:
        return None
    known = _buffers()
    overrides = [_Override(pattern.encode(), known[buffer]) for pattern, buffer in chosen]
    return (_Override * (len(overrides) + 1))(*overrides, _Override(None, None))
