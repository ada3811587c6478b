"""What a measurement ran on: the machine, the software, and the models as they were loaded."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from specli.llama import hardware
from specli.llama.binding import version
from specli.llama.model import LlamaModel
from specli.llama.parameters import has_gpu_backend, on_gpu


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine and the software that measured."""

    processor: str
    cores: int  # logical ones that this process may use
    system: str
    python: str
    llama_cpp_python: str
    gpu: bool  # whether llama.cpp was built with GPU support


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model as it was loaded."""

    name: str
    bytes: int  # size of its file
    quantization: str
    parameters: int
    threads: int
    context: int  # tokens
    gpu: bool
    exact: bool
    loading: str = ""  # what was unlike the usual way, in words; '' is what files of the first edition mean
    adapters: tuple[str, ...] = ()  # what tells each from others


def this_machine() -> Machine:
    """Describe the machine."""
    return Machine(
        hardware.processor_name(),
        hardware.usable_cores(),
        platform.system(),
        platform.python_version(),
        version(),
        has_gpu_backend(),
    )


def model_facts(name: str, model: LlamaModel) -> ModelFacts:
    """Describe a loaded model."""
    return ModelFacts(
        name,
        model.file.size,
        model.file.quantization,
        model.file.parameters,
        model.threads,
        model.n_context,
        on_gpu(model.options),
        model.options.exact,
        model.options.in_words,
        tuple(adapter.key for adapter in model.adapters),
    )
