"""The models that other tools have put on this disk: found, run in place, and never changed.

Each tool has its own layout, which its part here describes. All search is bounded, and what is broken is left out, with
a reason.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from specli.errors import ModelNotFoundError
from specli.models import ollama
from specli.models.folders import FoundModel, Search, model_files, stem

_DEPTH = 4  # of folders with models in folders


def search_all(known: Iterable[Path | None] = ()) -> tuple[list[FoundModel], list[str]]:
    """Look for models in the folders of all tools, except those whose files are known.

    Each file is found once: several tools may share one, by links or by their settings.

    Returns:
        The models; and what was left out, one line each.
    """
    models, problems = dict[str, FoundModel](), list[str]()
    for tool, look in TOOLS.items():
        search = Search(tool)
        look(search)
        problems += search.all_problems()
        for model in search.models:
            models.setdefault(os.path.realpath(model.path), model)
    for path in known:
        if path is not None:
            models.pop(os.path.realpath(path), None)
    return list(models.values()), problems


def find_model(argument: str) -> FoundModel | None:
    """Return the model of another tool that an argument names, None if there is none.

    Raises:
        ModelNotFoundError: several have this name.
    """
    if argument.startswith(ollama.PREFIX):
        argument = ollama.full_name(argument)
    matching = [model for model in search_all()[0] if argument in (model.name, model.path.name)]
    if len(matching) > 1:
        places = ", ".join(str(model.path) for model in matching[:3])
        raise ModelNotFoundError(f"{len(matching)} models are named {argument!r}: {places}.", "Name one by its path.")
    return matching[0] if matching else None


def _home(*parts: str) -> Path:
    return Path(os.path.expanduser("~"), *parts)


def _folder(variable: str, default: Path) -> Path:
    value = os.environ.get(variable)
    return Path(os.path.expanduser(value)) if value else default


def _caches() -> Path:
    if sys.platform == "darwin":
        return _home("Library", "Caches")
    if sys.platform == "win32":
        return _folder("LOCALAPPDATA", _home("AppData", "Local"))
    return _folder("XDG_CACHE_HOME", _home(".cache"))


def _look_for_own_folders(search: Search) -> None:
    for folder in os.environ.get("SPECLI_MODELS", "").split(os.pathsep):
        if folder:
            path = Path(os.path.expanduser(folder))
            if not path.is_dir():
                search.problem(path, "SPECLI_MODELS names it, but there is no such folder")
            _add_files(search, path, _DEPTH)


def _look_for_hugging_face(search: Search) -> None:
    home = _folder("HF_HOME", _folder("XDG_CACHE_HOME", _home(".cache")) / "huggingface")
    _add_hub(search, _folder("HF_HUB_CACHE", _folder("HUGGINGFACE_HUB_CACHE", home / "hub")))


def _add_hub(search: Search, hub: Path) -> None:
    for repository in search.folders(hub):
        if repository.name.startswith("models--"):
            _add_newest(search, hub / repository.name / "snapshots")


def _add_newest(search: Search, snapshots: Path) -> None:
    """Add each file of a repository once: as it is in the newest commit that has it."""
    commits = sorted(search.folders(snapshots), key=lambda entry: entry.stat().st_mtime, reverse=True)
    names = set()
    for commit in commits:
        for path in model_files(search, snapshots / commit.name, _DEPTH):
            if path.name not in names:
                names.add(path.name)
                search.add(stem(path), path)


def _look_for_llama_cpp(search: Search) -> None:
    folder = _folder("LLAMA_CACHE", _caches() / "llama.cpp")
    _add_files(search, folder, 1)
    _add_hub(search, folder)  # how newer ones keep what they have fetched


def _look_for_ollama(search: Search) -> None:
    if "OLLAMA_MODELS" in os.environ:
        ollama.find(search, _folder("OLLAMA_MODELS", Path()))
        return
    ollama.find(search, _home(".ollama", "models"))
    if sys.platform == "linux":  # where its service keeps them
        ollama.find(search, Path("/usr/share/ollama/.ollama/models"))


def _look_for_lm_studio(search: Search) -> None:
    for folder in (_home(".lmstudio", "models"), _home(".cache", "lm-studio", "models")):
        _add_files(search, folder, _DEPTH)


def _add_files(search: Search, folder: Path, depth: int) -> None:
    for path in model_files(search, folder, depth):
        search.add(stem(path), path)


TOOLS: dict[str, Callable[[Search], None]] = {
    "SPECLI_MODELS": _look_for_own_folders,
    "Hugging Face": _look_for_hugging_face,
    "llama.cpp": _look_for_llama_cpp,
    "Ollama": _look_for_ollama,
    "LM Studio": _look_for_lm_studio,
}
