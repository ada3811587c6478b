"""How models are put into memory, as options; no llama.cpp, so that a command line can offer them at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from specli.options import Option, check

DEFAULT_CONTEXT = 4096
MAX_THREADS = 512  # llama.cpp ends the process beyond

_CPU = "0 keeps the model on the CPU; leave it out to offload all."


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a pair of models is put into memory.

    Raises:
        OptionError: a value is out of its bounds.
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

    def __post_init__(self) -> None:
        check(self)

    def for_draft(self) -> LoadOptions:
        """Return how the draft model is loaded beside a target with these options; it has no need of exact rows."""
        return replace(self, gpu_layers=self.draft_gpu_layers, exact=False, for_drafts=True)
