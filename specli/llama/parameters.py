"""Options and the file's own figures, turned into llama.cpp's parameters.

Here is decided what a model is loaded with; it needs no weights.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from specli.decoding.options import MAX_DRAFT_LENGTH
from specli.errors import OptionError
from specli.llama import hardware
from specli.llama.binding import llama_cpp
from specli.llama.cache import sequences, snapshots, why_inexact
from specli.llama.cache_types import GGML_TYPES, require_cache_types
from specli.llama.gguf import GgufFile
from specli.llama.options import DEFAULT_CONTEXT, NO_DEVICES, LoadOptions
from specli.llama.placement import device_array, override_array, require_devices, require_tensors

MAX_ROWS = MAX_DRAFT_LENGTH + 1  # of logits, that one pass may return

_FLASH_ATTENTION = {
    "auto": llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "on": llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}
# By whether files are not mapped, and whether memory is locked; None is llama.cpp's default.
_LOAD_MODES = {
    (False, False): None,
    (True, False): llama_cpp.LLAMA_LOAD_MODE_NONE,
    (False, True): llama_cpp.LLAMA_LOAD_MODE_MMAP_MLOCK,
    (True, True): llama_cpp.LLAMA_LOAD_MODE_MLOCK,
}

GPU_REBUILD_HINT = (
    "Rebuild the bindings with CMAKE_ARGS='-DGGML_CUDA=on' (NVIDIA) or CMAKE_ARGS='-DGGML_METAL=on' (Apple): "
    "pip install --force-reinstall --no-cache-dir --no-binary llama-cpp-python llama-cpp-python"
)


def default_threads() -> int:
    """Return the number of physical cores: a second thread on a core slows llama.cpp down."""
    return hardware.usable_physical_cores()


def has_gpu_backend() -> bool:
    """Whether the installed llama.cpp was built to use a GPU."""
    return bool(llama_cpp.llama_supports_gpu_offload())


def on_gpu(options: LoadOptions) -> bool:
    """Whether weights go to a GPU."""
    return has_gpu_backend() and options.gpu_layers != 0 and tuple(options.devices) != NO_DEVICES


def require_backend(options: LoadOptions) -> None:
    """Refuse devices and buffers that are not there, and exact mode on a GPU, where it is not known to hold.

    Raises:
        OptionError: the options ask for it.
    """
    require_devices(options)
    if options.exact and on_gpu(options):
        raise OptionError(
            "`exact` is known to hold on the CPU only, and this llama.cpp would use a GPU.",
            "Set `gpu_layers` to 0 to keep the target on the CPU.",
            field="exact",
        )


def require_possible(file: GgufFile, options: LoadOptions) -> None:
    """Refuse what a model cannot be loaded with, and exact mode where it is not known to hold.

    Raises:
        OptionError: the options ask for it.
    """
    if options.exact and (why := why_inexact(file, options)):
        raise OptionError(f"`exact` is not known to hold here: {why}.", "Leave it out.", field="exact")
    require_cache_types(file, options)
    require_tensors(file, options)


def runs_on_amx() -> bool:
    """Whether llama.cpp would use Intel's matrix tiles, in which its kernels can end the process.

    The compiler may leave the tiles' configuration unwritten (llama.cpp issue 20824), and the first pass of two rows
    then is a segmentation fault. Models are loaded without repacked weights there, which is the only switch there is.
    """
    return b"AMX_INT8 = 1" in llama_cpp.llama_print_system_info()


def planned_context(file: GgufFile, options: LoadOptions) -> int:
    """Return how many tokens the cache will hold, before llama.cpp rounds it up."""
    if options.context is not None:
        return options.context
    trained = file.value("context_length")
    return min(DEFAULT_CONTEXT, trained) if isinstance(trained, int) else DEFAULT_CONTEXT


def model_parameters(options: LoadOptions) -> Any:
    """Return llama.cpp's parameters for putting weights into memory."""
    mode = _LOAD_MODES[options.no_mmap, options.mlock]
    parameters = llama_cpp.llama_model_default_params()
    if options.gpu_layers is not None:
        parameters.n_gpu_layers = options.gpu_layers
    if mode is not None:
        parameters.load_mode = mode
    # ctypes keeps no array alive whose address is stored: the parameters themselves do.
    parameters.kept = device_array(options), override_array(options)
    parameters.devices, parameters.tensor_buft_overrides = (
        ctypes.cast(one, ctypes.c_void_p) for one in parameters.kept
    )
    if runs_on_amx():
        parameters.use_extra_bufts = False
    if options.exact:
        # Kernels that depend on the number of rows: repacked weights, and tiles for eight rows and more. The variable
        # is read once in the life of the process.
        parameters.use_extra_bufts = False
        os.environ["GGML_CPU_TILED_MM"] = "0"
    return parameters


def context_parameters(file: GgufFile, options: LoadOptions) -> Any:
    """Return llama.cpp's parameters for a cache and for passes."""
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx = planned_context(file, options)
    parameters.n_seq_max = sequences(file, options)
    parameters.kv_unified = parameters.n_seq_max > 1
    batch = max(options.batch, parameters.n_seq_max)  # room for one token of each, else an assertion fails
    parameters.n_batch = parameters.n_ubatch = batch
    parameters.n_outputs_max = min(MAX_ROWS, batch)
    parameters.n_threads = parameters.n_threads_batch = options.threads or default_threads()
    # Else keep only the window, as llama.cpp's own tools do; `rewind` knows. Marks of recurrent models need all.
    parameters.swa_full = options.exact or file.recurrent_layers > 0
    parameters.type_k, parameters.type_v = GGML_TYPES[options.cache_type_k], GGML_TYPES[options.cache_type_v]
    parameters.flash_attn_type = _FLASH_ATTENTION["on" if options.exact else options.flash_attention]
    if file.recurrent_layers:
        parameters.n_rs_seq = snapshots(file, options)
    return parameters
