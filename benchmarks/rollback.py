"""What taking rejected tokens back costs on recurrent and hybrid models: random ones, as large as published small ones.

    python benchmarks/rollback.py [--folder FOLDER] [--rounds 12] [--draft-length 4] [--context 256]

Rounds feed one certain token and a draft, of which all, half or nothing is kept. A table compares their times with that
of a pass of one token. Blocks of rounds of each kind alternate in one process. Let nothing else run meanwhile.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np

from specli.llama.cache import snapshots
from specli.llama.model import LlamaModel
from specli.llama.options import LoadOptions

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "llama"))

from hybrids import Shape, write_granite, write_lfm2, write_qwen35

WORDS = 32_000

MODELS: dict[str, tuple[Callable[..., Path], Shape]] = {
    "lfm2-350m": (
        write_lfm2,
        Shape(1024, 16, 16, 8, 64, 4608, (2, 5, 8, 10, 12, 14), kernel=3, n_vocab=WORDS, tied=True),
    ),
    "granite-h-350m": (
        write_granite,
        Shape(768, 32, 12, 4, 64, 2048, (10, 13, 17, 27), state=128, state_heads=48, n_vocab=WORDS, tied=True),
    ),
    "qwen35-0.8b": (
        write_qwen35,
        Shape(1024, 24, 8, 2, 256, 3584, state=128, state_heads=16, state_groups=16, rope=64, n_vocab=WORDS, tied=True),
    ),
}


class Text:
    """A text that grows by rounds with random drafts."""

    def __init__(self, model: LlamaModel, length: int) -> None:
        self._model = model
        self._rng = np.random.default_rng(1)
        self._tokens = self._random(length)
        model.rewind(0)
        model.feed(self._tokens[:-1], rows=0)

    def _random(self, count: int) -> list[int]:
        return [int(token) for token in self._rng.integers(5, WORDS, count)]

    def round(self, drafted: int, kept: int) -> float:
        """Feed what is certain and a draft, keep the first tokens of it; return the milliseconds."""
        model, draft = self._model, self._random(drafted)
        started = perf_counter()
        model.feed(self._tokens[model.n_past :] + draft, rows=drafted + 1)
        model.rewind(len(self._tokens) + kept)
        taken = perf_counter() - started
        self._tokens += draft[:kept] + self._random(1)
        return 1000 * taken


def measure(model: LlamaModel, context: int, drafted: int, rounds: int) -> dict[str, float]:
    """Return the middle time in milliseconds of a round of each kind."""
    text = Text(model, context)
    kinds = {"one token": (0, 0), "all kept": (drafted, drafted), "half": (drafted, drafted // 2), "none": (drafted, 0)}
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, (count, kept) in kinds.items():
            text.round(count, kept)  # pays for what the kind before has left to be read again
            times[kind] += [text.round(count, kept) for _ in range(4)]
    return {kind: statistics.median(found) for kind, found in times.items()}


def main() -> None:
    """Write the models, measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where models are kept; a temporary folder by default")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--draft-length", type=int, default=4)
    parser.add_argument("--context", type=int, default=256)
    arguments = parser.parse_args()
    print("| model | back by | pass of one token, ms | all kept | half taken back | all taken back |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        for name, (write, shape) in MODELS.items():
            path = (arguments.folder or Path(temporary)) / f"{name}-q8_0.gguf"
            if not path.exists():
                write(path, shape, kind="Q8_0")
            for options in (LoadOptions(), LoadOptions(for_drafts=True)):
                model = LlamaModel(path, options)
                way = "snapshots" if snapshots(model.file, options) else "marks"
                if way == "snapshots" or options.for_drafts:
                    found = measure(model, arguments.context, arguments.draft_length, arguments.rounds)
                    one, whole = found["one token"], found["all kept"]
                    extra = [f"{100 * (found[kind] - whole) / one:+.0f} %" for kind in ("half", "none")]
                    print(
                        f"| {name} | {way} | {one:.1f} | {whole / one:.2f} passes | {extra[0]} | {extra[1]} |",
                        flush=True,
                    )
                model.close()
                gc.collect()


if __name__ == "__main__":
    main()
