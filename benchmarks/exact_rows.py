"""Whether exact mode holds for a model on this machine: the same tokens in passes of different sizes, bit by bit.

    python benchmarks/exact_rows.py MODEL... [--threads 1,2]

Each model is a name of `specli list` or a .gguf file. Prints, for each context, how many rows of logits differ from
those of single-token passes; 0 everywhere is what exact mode promises.
"""

from __future__ import annotations

import argparse

import numpy as np

from specli.llama.model import LlamaModel
from specli.llama.options import LoadOptions
from specli.models.files import Silent, ensure_file
from specli.models.registry import load_registry

CONTEXTS = (100, 245, 500, 1010)  # the cache grows in steps of 256 places
PASS_SIZES = (1, 2, 3, 5, 8, 9, 17, 32)
ROWS = 32


def rows_of(model: LlamaModel, tokens: list[int], context: int, size: int) -> np.ndarray:
    """Return the logits [ROWS, n_vocab] after a context, computed `size` tokens a pass."""
    model.rewind(context)
    parts = [tokens[at : min(at + size, context + ROWS)] for at in range(context, context + ROWS, size)]
    return np.concatenate([model.feed(part, rows=len(part)).copy() for part in parts])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", default="1,2")
    arguments = parser.parse_args()
    for name in arguments.models:
        path = ensure_file(load_registry().find(name), Silent())
        for threads in (int(number) for number in arguments.threads.split(",")):
            with LlamaModel(path, LoadOptions(context=1280, threads=threads, exact=True)) as model:
                tokens = np.random.default_rng(0).integers(1000, 20_000, CONTEXTS[-1] + ROWS).tolist()
                found = []
                for context in CONTEXTS:
                    model.feed(tokens[model.n_past : context], rows=0)
                    single = rows_of(model, tokens, context, 1)
                    others = [rows_of(model, tokens, context, size) for size in PASS_SIZES[1:]]
                    differing = [int((rows != single).any(axis=1).sum()) for rows in others]
                    found.append(f"{context}: {max(differing)}")
                    model.rewind(context)
                kinds = "/".join(sorted(model.file.matrix_kinds))
                print(
                    f"{path.name} ({kinds}), threads {threads}: rows that differ after {', '.join(found)}", flush=True
                )


if __name__ == "__main__":
    main()
