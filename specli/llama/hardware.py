"""What this machine has: cores, memory, and the name of its processor."""

from __future__ import annotations

import platform
from pathlib import Path

import psutil


def usable_cores() -> int:
    """Return how many logical cores this process may use."""
    process = psutil.Process()
    if hasattr(process, "cpu_affinity"):  # macOS has none
        return len(process.cpu_affinity())
    return psutil.cpu_count() or 1


def usable_physical_cores() -> int:
    """Return how many physical cores this process may use; half the logical ones if the system does not tell."""
    physical, usable = psutil.cpu_count(logical=False), usable_cores()
    return min(physical, usable) if physical else max(1, usable // 2)


def available_memory() -> int:
    """Return how many bytes of memory programs can get without swapping."""
    return int(psutil.virtual_memory().available)


def processor_name() -> str:
    """Return what the processor calls itself, or at least its architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
