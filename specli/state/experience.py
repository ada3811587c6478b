"""What passes of a pair cost, and how often its drafts were accepted, kept on disk from one run to the next.

The file holds, by pair, `context`, `target` and `draft` of a calibration; and by pair and use (a drafter and a kind of
temperature), an `experience`. The first edition kept one experience for all uses of a pair. Damage counts as absence.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from specli.decoding.costs import PassCosts
from specli.decoding.schedule import Experience
from specli.state import atomic
from specli.state.data import Struct, checked
from specli.state.paths import costs_path
from specli.state.reading import read_file


class _Calibration(Struct):
    context: int
    target: dict[str, float]
    draft: float | None


def load_costs(pair: str) -> PassCosts | None:
    """Return the calibration of a pair, or None."""
    with suppress(ValueError, KeyError):
        found = checked(_read()[pair], _Calibration)
        return PassCosts(found.context, {int(rows): seconds for rows, seconds in found.target.items()}, found.draft)
    return None


def save_costs(pair: str, costs: PassCosts) -> None:
    """Keep a calibration; where nothing can be written, it is measured again the next time."""
    _update(pair, asdict(costs))


def load_experience(pair: str, use: str, otherwise: Experience | None = None) -> Experience:
    """Return what drafts of a pair have taught in a use, or what is to be assumed if nothing is known."""
    for key in (f"{pair} {use}", pair):  # the latter was written by the first edition
        with suppress(ValueError, KeyError):
            return checked(_read()[key]["experience"], Experience)
    return otherwise or Experience()


def save_experience(pair: str, use: str, experience: Experience) -> None:
    """Keep what drafts of a pair have taught in a use; where nothing can be written, it is learned again."""
    _update(f"{pair} {use}", {"experience": asdict(experience)})


def _update(key: str, values: dict[str, Any]) -> None:
    path, content = costs_path(), _read()
    content[key] = content.get(key, {}) | values
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(path, json.dumps(content, indent=1))


def _read() -> dict[str, dict[str, Any]]:
    """Return everything that is kept; what cannot be read counts as absent and is written anew."""
    try:
        content = json.loads(read_file(costs_path()))
        return {key: found for key, found in content.items() if isinstance(found, dict)}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}
