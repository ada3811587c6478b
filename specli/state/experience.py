"""What passes of a pair cost, and how often its drafts were accepted, kept on disk from one run to the next.

Knows the file. Must not know how this is measured or used. A file that is damaged is as good as none.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from specli.decoding.calibration import CostCurve
from specli.decoding.schedule import NO_EXPERIENCE, Experience
from specli.state import atomic
from specli.state.paths import costs_path


def load(key: str) -> CostCurve | None:
    """Return the calibration of a key, or None."""
    try:
        found = _read()[key]
        target = {int(rows): float(seconds) for rows, seconds in found["target"].items()}
        draft = None if found["draft"] is None else float(found["draft"])
        return CostCurve(int(found["context"]), target, draft) if target.get(1, 0) > 0 else None
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def save(key: str, curve: CostCurve) -> None:
    """Keep a calibration; where nothing can be written, it is measured again the next time."""
    _update(key, {"context": curve.context, "target": dict(curve.target), "draft": curve.draft})


def load_experience(key: str) -> Experience | None:
    """Return what the drafts of a pair have taught, or None."""
    try:
        found = _read()[key]["experience"]
        acceptance, matches = (tuple(map(float, found[name])) for name in ("acceptance", "matches"))
        experience = Experience(acceptance, tuple(tuple(map(float, row)) for row in found["shares"]), matches)
    except (KeyError, TypeError, ValueError):
        return None
    fits = _shape(experience) == _shape(NO_EXPERIENCE)
    values = (*experience.acceptance, *experience.matches, *(value for row in experience.shares for value in row))
    return (
        experience if fits and all(0 <= value <= 1 for value in values) and all(map(sum, experience.shares)) else None
    )


def _shape(experience: Experience) -> tuple[int, list[int], int]:
    return len(experience.acceptance), [len(row) for row in experience.shares], len(experience.matches)


def save_experience(key: str, experience: Experience) -> None:
    """Keep what the drafts of a pair have taught; where nothing can be written, it is learned again."""
    _update(key, {"experience": asdict(experience)})


def _update(key: str, values: dict[str, Any]) -> None:
    path, content = costs_path(), _read()
    before = content.get(key)
    content[key] = (before if isinstance(before, dict) else {}) | values
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(path, json.dumps(content, indent=1))


def _read() -> dict[str, Any]:
    try:
        content = json.loads(costs_path().read_text(encoding="utf-8"))
        return content if isinstance(content, dict) else {}
    except (OSError, ValueError):
        return {}
