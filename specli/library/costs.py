"""What passes cost, kept on disk so that each pair is calibrated once.

Knows the file. Must not know how costs are measured or used. A file that is damaged is as good as none.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from specli.decoding.calibration import CostCurve


def costs_path() -> Path:
    """Return the file of all calibrations."""
    home = os.environ.get("SPECLI_HOME")
    return (Path(home) if home else user_cache_path("specli")) / "costs.json"


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
    path = costs_path()
    content = _read() | {key: {"context": curve.context, "target": dict(curve.target), "draft": curve.draft}}
    unfinished = path.with_name(f".costs.{os.getpid()}.json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(json.dumps(content, indent=1), encoding="utf-8")
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)


def _read() -> dict[str, Any]:
    try:
        content = json.loads(costs_path().read_text(encoding="utf-8"))
        return content if isinstance(content, dict) else {}
    except (OSError, ValueError):
        return {}
