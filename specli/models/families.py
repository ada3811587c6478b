"""Draft models for well-known families, each with the place that says that it fits.

That is a report, not a check: only the vocabularies of Qwen2.5-Coder were compared here. A family is recognized by what
the file says of itself. Families for which no such report was found are not here: Granite, Ministral, SmolLM2, Qwen3.6.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from specli.llama.gguf import GgufFile

_LEAST_RATIO = 3  # of the parameters of target and draft


@dataclass(frozen=True, slots=True)
class Family:
    """Targets of one family, and a draft model for them."""

    name: str
    architectures: tuple[str, ...]
    pattern: str  # in the name that a file gives its model, in lower case
    draft: str
    draft_parameters: int
    source: str  # where this pair is used or compared

    def __str__(self) -> str:
        return f"{self.draft} is said to fit ({self.source}); 'specli check' tells"


# The first that fits counts.
FAMILIES = (
    Family(
        "DeepSeek-R1-Distill-Qwen", ("qwen2",), r"deepseek.?r1.?distill.?qwen",
        "alamios/DeepSeek-R1-DRAFT-Qwen2.5-0.5B", 494_000_000, "github.com/ubicloud/ubicloud/pull/2885",
    ),
    Family(
        "Qwen2.5-Coder", ("qwen2",), r"qwen2\.5.?coder",
        "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", 494_000_000, "github.com/ggml-org/llama.cpp/pull/10290",
    ),
    Family(
        "Qwen2.5", ("qwen2",), r"qwen2\.5",
        "Qwen/Qwen2.5-0.5B-Instruct-GGUF", 494_000_000, "github.com/vllm-project/vllm/issues/10913",
    ),
    Family(
        "Qwen3", ("qwen3", "qwen3moe"), r"qwen3(?!\.\d)",
        "Qwen/Qwen3-0.6B-GGUF", 596_000_000, "github.com/vllm-project/vllm/pull/24322",
    ),
    Family(
        "Qwen3.5", ("qwen35", "qwen35moe"), r"qwen3\.5",
        "Qwen3.5-0.8B", 800_000_000, "github.com/lmstudio-ai/lmstudio-bug-tracker/issues/1597",
    ),
    Family(
        "Llama 3.1, 3.2", ("llama",), r"llama.?3\.[12]",
        "Llama-3.2-1B-Instruct", 1_236_000_000, "lmstudio.ai/blog/lmstudio-v0.3.10",
    ),
    Family(
        "Gemma 3", ("gemma3",), r"gemma.?3(?!n)",
        "gemma-3-1b-it", 1_000_000_000, "github.com/lmstudio-ai/lmstudio-bug-tracker/issues/481",
    ),
    Family(
        "Mistral Small 3.1", ("llama", "mistral3"), r"mistral.?small.?3\.1",
        "alamios/Mistral-Small-3.1-DRAFT-0.5B", 500_000_000,
        "reddit.com/r/LocalLLaMA/comments/1jie6oo",
    ),
)  # fmt: skip


def reported_draft(file: GgufFile) -> Family | None:
    """Return the family of the target that a file holds, with a draft model for it; None if none is known."""
    said = " ".join(str(file.metadata.get(f"general.{key}", "")) for key in ("basename", "name")).lower()
    for family in FAMILIES:
        if file.architecture in family.architectures and re.search(family.pattern, said):
            return family if file.parameters >= _LEAST_RATIO * family.draft_parameters else None
    return None
