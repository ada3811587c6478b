"""What a measurement ran on.

Knows the operating system and llama.cpp's build. Must not know what is measured.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from specli.llama.binding import version
from specli.llama.model import LlamaModel, has_gpu_backend, on_gpu


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine and the program that drives it."""

    processor: str
    cores: int  # that this process may use
    system: str
    python: str
    llama_cpp_python: str
    gpu: bool  # whether llama.cpp was built to use one


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model as it was loaded."""

    name: str
    bytes: int
    quantisation: str
    parameters: int
    threads: int
    context: int
    gpu: bool
    exact: bool


def this_machine() -> Machine:
    """Describe the machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(_processor(), cores, platform.system(), platform.python_version(), version(), has_gpu_backend())


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def model_facts(name: str, model: LlamaModel) -> ModelFacts:
    """Describe a loaded model."""
    return ModelFacts(
        name,
        model.file.size,
        model.file.quantisation,
        model.file.parameters,
        model.threads,
        model.n_context,
        on_gpu(model.options),
        model.options.exact,
    )
