"""Which of the models on this disk can draft for which, and how well that may go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from specli.errors import SpecliError
from specli.llama.fitness import require_runnable
from specli.llama.gguf import GgufFile, read_gguf
from specli.llama.pairing import check_pair
from specli.llama.vocabulary import Vocabulary
from specli.models import elsewhere, files
from specli.models.checks import one_line
from specli.models.prediction import ACCEPTANCE, LARGEST_SHARE, TEXT_ACCEPTANCE, Prediction, predict
from specli.models.registry import Registry

_LEAST_OVERLAP = 0.99  # of the sizes of vocabularies of one family
_QUICK_SECONDS = 0.5  # that a look for a draft model may take before a reply


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model on this disk that continues text."""

    name: str  # as an argument of a command
    file: GgufFile

    @property
    def experts(self) -> bool:
        """Whether it is a mixture of experts, of which a pass reads more the more tokens it has."""
        return bool(self.file.value("expert_count"))


@dataclass(frozen=True, slots=True)
class PossiblePair:
    """A target and a model that can draft for it."""

    target: Candidate
    draft: Candidate
    as_text: bool
    differing_tokens: int
    prediction: Prediction


def places(registry: Registry) -> tuple[list[tuple[str, Path]], list[str]]:
    """Return the names and files of the models on this disk, and what was left out, one line each."""
    found = {entry.name: files.find_file(entry) for entry in registry.models.values()}
    named = [(name, path) for name, path in found.items() if path is not None]
    others, problems = elsewhere.search_all(found.values())
    names = [*found, *(model.name for model in others)]
    named += [(model.name if names.count(model.name) == 1 else str(model.path), model.path) for model in others]
    return named, problems


def load_candidate(name: str, path: Path) -> Candidate:
    """Read the header of a model; raises ModelFileError or ModelUnsupportedError if it cannot continue text."""
    file = read_gguf(path)
    require_runnable(file)
    return Candidate(name, file)


def candidates(registry: Registry) -> tuple[list[Candidate], list[str]]:
    """Return the models on this disk, smallest first, and what was left out, one line each."""
    named, problems = places(registry)
    found = []
    for name, path in named:
        try:
            found.append(load_candidate(name, path))
        except SpecliError as error:
            problems.append(one_line(f"{name} was left out: {error.message}"))
    return sorted(found, key=lambda one: one.file.size), problems


def possible_pairs(
    target: Candidate, drafts: list[Candidate], vocabulary: Callable[[Path], Vocabulary]
) -> list[PossiblePair]:
    """Return the models that may make a target faster, best first.

    `vocabulary` loads that of a file; with several targets it should keep what it has loaded.

    Raises:
        SpecliError: the vocabulary of the target cannot be read. Drafts whose vocabulary cannot be read are left out.
    """
    wanted = vocabulary(target.file.path)
    found = []
    for draft in drafts:
        if draft.file.path == target.file.path or draft.file.size > LARGEST_SHARE * target.file.size:
            continue
        with suppress(SpecliError):
            report = check_pair(wanted, vocabulary(draft.file.path))
            if not report.compatible and not report.as_text:
                continue
            acceptance = ACCEPTANCE if report.compatible else TEXT_ACCEPTANCE
            prediction = predict(target.file.size, draft.file.size, acceptance)
            if prediction.speedup > 1:
                pair = PossiblePair(target, draft, not report.compatible, len(report.differing), prediction)
                found.append(pair)
    return sorted(found, key=lambda pair: -pair.prediction.speedup)


def quick_draft(target: Path, registry: Registry) -> str | None:
    """Return the name of the model here that looks best as a draft for a target, None if none does.

    It is the smallest one whose header describes the same tokenizer; vocabularies are not compared. Time is bounded.
    """
    until = monotonic() + _QUICK_SECONDS
    with suppress(SpecliError, OSError):
        wanted = read_gguf(target)
        for name, path in _by_size(places(registry)[0]):
            if path.stat().st_size > LARGEST_SHARE * wanted.size or monotonic() > until:
                break
            with suppress(SpecliError):
                file = load_candidate(name, path).file  # of several files, the first alone may look small
                if file.size <= LARGEST_SHARE * wanted.size and _same_tokenizer(file, wanted):
                    return name
    return None


def _by_size(named: list[tuple[str, Path]]) -> Iterator[tuple[str, Path]]:
    sizes = []
    for name, path in named:
        with suppress(OSError):
            sizes.append((path.stat().st_size, name, path))
    return ((name, path) for _, name, path in sorted(sizes))


def _same_tokenizer(one: GgufFile, other: GgufFile) -> bool:
    kinds = [[file.metadata.get(f"tokenizer.ggml.{key}") for key in ("model", "pre")] for file in (one, other)]
    sizes = [file.metadata.get("tokenizer.ggml.tokens") for file in (one, other)]
    small, large = sorted(size if isinstance(size, int) else 0 for size in sizes)
    return kinds[0] == kinds[1] and small >= _LEAST_OVERLAP * large > 0  # some of a family are padded
