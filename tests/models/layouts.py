"""Folders as other tools lay them out, with tiny models."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path

COMMIT = "d" * 40
KIND = "application/vnd.ollama.image."


def manifest(digest: str, **more) -> bytes:
    layers = [
        {"mediaType": f"{KIND}model", "digest": digest, "size": 1},
        {"mediaType": f"{KIND}template", "digest": "sha256:" + "0" * 64, "size": 1},
    ]
    return json.dumps({"schemaVersion": 2, "layers": layers, **more}).encode()


def add_to_ollama(folder: Path, name: str, source: Path) -> Path:
    """`name` is HOST/NAMESPACE/MODEL/TAG."""
    digest = sha256(source.read_bytes()).hexdigest()
    blob = folder / "blobs" / f"sha256-{digest}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, blob)
    path = folder / "manifests" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(manifest(f"sha256:{digest}"))
    return blob


def add_to_hugging_face(hub: Path, repository: str, name: str, source: Path, commit: str = COMMIT) -> Path:
    folder = hub / f"models--{repository.replace('/', '--')}"
    blob = folder / "blobs" / sha256(source.read_bytes() + commit.encode()).hexdigest()
    blob.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, blob)
    path = folder / "snapshots" / commit / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(blob)
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / "main").write_text(commit)
    return path


def add_file(folder: Path, name: str, source: Path) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, path)
    return path


def add_all(user: Path, hub: Path, source: Path) -> dict[str, Path]:
    """Lay out one model for each tool; return their names and files."""
    ollama = user / ".ollama" / "models"
    return {
        "ollama:small:latest": add_to_ollama(ollama, "registry.ollama.ai/library/small/latest", source),
        "hugging-q8_0": add_to_hugging_face(hub, "some/model", "hugging-q8_0.gguf", source),
        "some_model_cpp": add_file(user / ".cache" / "llama.cpp", "some_model_cpp.gguf", source),
        "studio-q4": add_file(user / ".lmstudio" / "models", "some/model-GGUF/studio-q4.gguf", source),
        "old-studio": add_file(user / ".cache" / "lm-studio" / "models", "some/other/old-studio.gguf", source),
        "own": add_file(user / "own", "deep/own.gguf", source),
    }


def everything_below(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return what a search may not change: modes, sizes and times of change of all that is there."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        status = path.lstat()
        found[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns)
    return found
