"""The models of Ollama: manifests name the files, which are called by their digests.

`manifests/HOST/NAMESPACE/NAME/TAG` is JSON with a list of layers; that of the weights is `blobs/sha256-DIGEST`. A name
in a manifest is only ever a digest, so that it cannot lead out of the folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specli.models.checks import check_name, read_small
from specli.models.folders import Search
from specli.state.data import Struct, checked

PREFIX = "ollama:"
_HOST, _NAMESPACE, _TAG = "registry.ollama.ai", "library", "latest"
_LARGEST_MANIFEST = 1 << 20  # bytes
_KIND = "application/vnd.ollama.image."


class _Layer(Struct):
    media_type: str
    digest: str


def find(search: Search, folder: Path) -> None:
    """Add the models in one of Ollama's folders."""
    for path, name in _manifests(search, folder / "manifests"):
        try:
            search.add(name, folder / "blobs" / f"sha256-{_digest(path)}")
        except (OSError, ValueError, RecursionError) as error:
            search.problem(path, "it is nested too deeply" if isinstance(error, RecursionError) else error)


def full_name(argument: str) -> str:
    """Return `ollama:[[host/]namespace/]name[:tag]` as `find` writes it.

    Raises:
        ValueError: no name can be like that.
    """
    name = argument.removeprefix(PREFIX)
    check_name("the name for Ollama", name)
    *folders, last = name.split("/")
    model, _, tag = last.partition(":")
    standard = [_HOST, _NAMESPACE]
    host, namespace = (standard[: max(0, 2 - len(folders))] + folders)[-2:]
    return _name(host, namespace, model, tag or _TAG)


def _name(host: str, namespace: str, model: str, tag: str) -> str:
    parts = [host, namespace, model]
    if host == _HOST:
        parts = parts[2 if namespace == _NAMESPACE else 1 :]
    return f"{PREFIX}{'/'.join(parts)}:{tag}"


def _manifests(search: Search, folder: Path) -> Iterator[tuple[Path, str]]:
    for host in search.folders(folder):
        for namespace in search.folders(folder / host.name):
            for model in search.folders(folder / host.name / namespace.name):
                place = folder / host.name / namespace.name / model.name
                for tag in search.entries(place):
                    if not tag.name.startswith("."):  # what a system leaves in folders
                        yield place / tag.name, _name(host.name, namespace.name, model.name, tag.name)


def _digest(path: Path) -> str:
    """Return the digest of a model's weights.

    Raises:
        OSError, ValueError, RecursionError: the manifest cannot be read, or names no weights that can be used alone.
    """
    content = json.loads(read_small(path, _LARGEST_MANIFEST).decode())
    layers = _layers(content)
    kinds = {layer.media_type for layer in layers}
    weights = [layer.digest for layer in layers if layer.media_type == f"{_KIND}model"]
    if len(weights) != 1:
        raise ValueError(f"it has {len(weights)} layers of weights instead of one")
    if f"{_KIND}adapter" in kinds:
        raise ValueError("it needs an adapter, which specli cannot load from there")
    found = re.fullmatch(r"sha256[:-]([0-9a-f]{64})", weights[0])
    if not found:
        raise ValueError("the digest of its weights is not sha256: and 64 hexadecimal digits")
    return found[1]


def _layers(content: Any) -> list[_Layer]:
    if not isinstance(content, dict) or not isinstance(content.get("layers"), list):
        raise ValueError("it has no list of layers")
    found = []
    for layer in content["layers"]:
        if not isinstance(layer, dict):
            raise ValueError("one of its layers is no object")
        named = {"media_type": layer.get("mediaType"), "digest": layer.get("digest")}
        found.append(checked(named, _Layer))
    return found
