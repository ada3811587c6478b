"""What passes of a pair cost, and how often its drafts were accepted, kept on disk from one run to the next.

The file holds, by pair, `context`, `target` and `draft` of a calibration; and by pair and use (a drafter and a kind of
temperature), an `experience`. The first edition kept one experience for all uses of a pair. Damage counts as absence.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from specli.decoding.costs import PassCosts
from specli.decoding.schedule import Experience
from specli.state import atomic
from specli.state.paths import costs_path

_DAMAGE = (KeyError, TypeError, ValueError, AttributeError)


def load_costs(pair: str) -> PassCosts | None:
    """Return the calibration of a pair, or None."""
    try:
        found = _read()[pair]
        target = {int(rows): float(seconds) for rows, seconds in found["target"].items()}
        costs = PassCosts(int(found["context"]), target, None if found["draft"] is None else float(found["draft"]))
    except _DAMAGE:
        return None
    return costs if 1 in target and all(0 < one < math.inf for one in (*target.values(), costs.draft or 1.0)) else None


def save_costs(pair: str, costs: PassCosts) -> None:
    """Keep a calibration; where nothing can be written, it is measured again the next time."""
    _update(pair, asdict(costs))


def load_experience(pair: str, use: str) -> Experience:
    """Return what drafts of a pair have taught in a use, as far as anything is known."""
    content, new = _read(), Experience()
    for key in (f"{pair} {use}", pair):  # the latter was written by the first edition
        try:
            found = content[key]["experience"]
            acceptance, matches = (tuple(map(float, found[name])) for name in ("acceptance", "matches"))
            overall = float(found.get("overall", new.overall))
        except _DAMAGE:
            continue
        fits = (len(acceptance), len(matches)) == (len(new.acceptance), len(new.matches))
        if fits and all(0 <= rate <= 1 for rate in (*acceptance, overall, *matches)):
            return Experience(acceptance, overall, matches)
    return new


def save_experience(pair: str, use: str, experience: Experience) -> None:
    """Keep what drafts of a pair have taught in a use; where nothing can be written, it is learned again."""
    _update(f"{pair} {use}", {"experience": asdict(experience)})


def _update(key: str, values: dict[str, Any]) -> None:
    path, content = costs_path(), _read()
    before = content.get(key)
    content[key] = (before if isinstance(before, dict) else {}) | values
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(path, json.dumps(content, indent=1))


def _read() -> dict[str, dict[str, Any]]:
    try:
        content = json.loads(costs_path().read_text(encoding="utf-8"))
        return {key: found for key, found in content.items() if isinstance(found, dict)}
    except (OSError, *_DAMAGE):
        return {}
