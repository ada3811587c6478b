"""What all tests share. Nothing here, and no test, needs a network."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# Before llama.cpp is loaded, here and in the processes that tests start: its threads must not spin while they wait for
# a core that another test has.
os.environ["OMP_WAIT_POLICY"] = "passive"

for folder in ("decoding", "llama", "models"):
    sys.path.insert(0, str(Path(__file__).parent / folder))


def pytest_collection_modifyitems(items):
    """Run the modules first that take longest, so that the workers end at the same time."""
    items.sort(key=lambda item: item.path.stem not in ("test_real_models", "test_real_path"))


@pytest.fixture(scope="session")
def model_file():
    """Return the file of a real model; the test is skipped when it was not fetched."""
    from specli.models.files import find_file
    from specli.models.registry import load_registry

    registry = load_registry()
    found = {name: find_file(entry) for name, entry in registry.models.items()}

    def file_of(name: str) -> Path:
        path = found[name]
        if path is None:
            message = f"{name} is not on this disk; 'specli pull {name}' fetches it"
            if os.environ.get("SPECLI_TEST_MODELS") == "required":
                pytest.fail(message)
            pytest.skip(message)
        return path

    return file_of


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home for models and configuration, and for what other tools keep there."""
    for variable in (
        "OLLAMA_MODELS",
        "LLAMA_CACHE",
        "SPECLI_MODELS",
        "HF_HOME",
        "HUGGINGFACE_HUB_CACHE",
        "XDG_CACHE_HOME",
        "LOCALAPPDATA",
    ):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("SPECLI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory):
    """A tiny target model."""
    from tiny import write_tiny_model

    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "target.gguf", seed=1)


@pytest.fixture(scope="session")
def tiny_draft_file(tmp_path_factory):
    """A tiny model that can draft for it."""
    from tiny import write_tiny_model

    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "draft.gguf", seed=2)
