"""Looking through folders that belong to other tools: bounded, read only, and never stopped by what is broken there."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from specli.llama.shards import MOST_SHARDS, shard_names, shard_of
from specli.models.checks import check_name, one_line

_MOST_ENTRIES = 20_000  # of one tool's folders
_MOST_PROBLEMS = 5  # that are said of one tool
_NO_MODELS = ("mmproj", "imatrix")  # in the names of files that lie beside models


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that another tool has put on this disk."""

    name: str  # as an argument of a command
    path: Path  # of its first file
    tool: str
    bytes: int  # of all its files


@dataclass(slots=True)
class Search:
    """What a search through the folders of one tool has found, and how much more it may look at."""

    tool: str
    models: list[FoundModel] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # one line each
    _entries: int = _MOST_ENTRIES
    _unsaid: int = 0  # problems

    def problem(self, path: Path | str, why: object) -> None:
        """Note why something was left out; of many such notes only the first ones are kept."""
        if len(self.problems) < _MOST_PROBLEMS:
            reason = why.strerror or why if isinstance(why, OSError) else why
            self.problems.append(one_line(f"{path} was left out: {reason}"))
        else:
            self._unsaid += 1

    def all_problems(self) -> list[str]:
        """Return the notes, and how many more there were."""
        more = [f"{self._unsaid} more of {self.tool} were left out"] if self._unsaid else []
        return self.problems + more

    def entries(self, folder: Path) -> list[os.DirEntry[str]]:
        """Return what is in a folder, by name; nothing if it does not exist or cannot be read."""
        found = []
        try:
            with os.scandir(folder) as scanned:
                for entry in scanned:
                    if self._entries == 0:
                        self.problem(folder, f"{self.tool} has more than {_MOST_ENTRIES} files and folders")
                        break
                    self._entries -= 1
                    found.append(entry)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            self.problem(folder, error)
        return sorted(found, key=lambda entry: entry.name)

    def folders(self, folder: Path) -> list[os.DirEntry[str]]:
        """Return the folders in a folder; links to folders count."""
        return [entry for entry in self.entries(folder) if _is_folder(entry)]

    def add(self, name: str, path: Path) -> None:
        """Add a model, if its files are all there."""
        try:
            check_name("the name", name)
            paths = [path.with_name(part) for part in _checked_shards(path.name)]
            self.models.append(FoundModel(name, path, self.tool, sum(map(file_size, paths))))
        except FileNotFoundError as error:
            self.problem(path, f"{Path(error.filename).name} is missing")
        except (OSError, ValueError) as error:
            self.problem(path, error)


def file_size(path: Path) -> int:
    """Return the size of a regular file in bytes.

    Raises:
        OSError: there is none.
        ValueError: it is something else, or empty.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode) or not status.st_size:
        raise ValueError("it is no regular file" if status.st_size else "it is empty")
    return status.st_size


def model_files(search: Search, folder: Path, depth: int) -> Iterator[Path]:
    """Yield the .gguf files below a folder that are models, or the first of several files; `depth` 0 is only itself.

    Links are followed, but no folder is looked at twice.
    """
    seen = set()
    waiting = [(folder, depth)]
    while waiting:
        here, below = waiting.pop()
        try:
            status = os.stat(here)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            search.problem(here, error)
            continue
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        deeper = []
        for entry in search.entries(here):
            if _is_folder(entry):
                if below:
                    deeper.append((here / entry.name, below - 1))
            elif is_model_name(entry.name):
                yield here / entry.name
        waiting += reversed(deeper)


def is_model_name(name: str) -> bool:
    """Whether a file may be a model by its name: no part for images, and no later one of several files."""
    lower = name.lower()
    return lower.endswith(".gguf") and not any(one in lower for one in _NO_MODELS) and shard_of(name)[0] == 1


def stem(path: Path) -> str:
    """Return the name of a model file without its ending, and without the number of the first of several files."""
    name = path.name[: -len(".gguf")]
    return name if shard_of(path.name) == (1, 1) else name[: -len("-00001-of-00001")]


def _checked_shards(name: str) -> list[str]:
    count = shard_of(name)[1]
    if not 1 <= count <= MOST_SHARDS:
        raise ValueError(f"a model of {count} files")
    return shard_names(name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
