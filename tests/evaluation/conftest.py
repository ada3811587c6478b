"""What the tests of the audits share."""

from __future__ import annotations

import pytest
from tiny import write_tiny_model

from specli.engine.engine import Engine
from specli.llama.model import LlamaModel
from specli.llama.options import LoadOptions


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    load = LoadOptions(context=512, threads=1)
    # The draft model is the target with flatter distributions: most of what it says is accepted.
    files = [write_tiny_model(folder / f"{width}.gguf", seed=31, sharpness=width) for width in (3.0, 1.8)]
    with Engine(*(LlamaModel(file, load) for file in files)) as engine:
        yield engine
