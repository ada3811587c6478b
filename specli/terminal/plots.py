"""Pictures, drawn with matplotlib, which is optional and loaded only when a picture is asked for.

Knows figures and axes. Must not know how a figure's numbers were found.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np

from specli.errors import MissingExtraError, OptionError
from specli.evaluation.distribution import BINS, DistributionReport

KINDS = (".png", ".svg")
BLUE, ORANGE, GREY = "#2563a8", "#d2691e", "#8a8f98"


def check(path: Path) -> None:
    """Refuse a picture that could not be drawn or written, before any work is done for it.

    Raises:
        OptionError: the file name has another ending, or its folder cannot be written to.
        MissingExtraError: matplotlib is not installed.
    """
    if path.suffix.lower() not in KINDS:
        raise OptionError(
            f"--plot is {str(path)!r}, but must end in {' or '.join(KINDS)}.", "For instance --plot audit.png."
        )
    if not path.absolute().parent.is_dir() or not os.access(path.absolute().parent, os.W_OK):
        raise OptionError(f"--plot is {str(path)!r}, but its folder cannot be written to.", "Choose another folder.")
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError(
            "pictures need matplotlib, which is not installed.", "Install it with: python -m pip install 'specli[plot]'"
        )


def new_figure(width: float, height: float, columns: int = 1) -> tuple[Any, Any]:
    """Return a figure of so many inches, and its axes from left to right; nothing needs a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure: Any, path: Path) -> None:
    """Write a picture, whole or not at all."""
    unfinished = path.with_name(f".{path.stem}.unfinished{path.suffix}")
    try:
        figure.savefig(unfinished, dpi=150, facecolor="white")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def save_audit(report: DistributionReport, path: Path) -> None:
    """Draw how the tested values are distributed, with the band in which 95 % of flat counts lie; and by place."""
    figure, (left, right) = new_figure(9, 3.4, columns=2)
    everything, *places = report.groups
    expected = everything.tokens / BINS
    edges = (np.arange(BINS) + 0.5) / BINS
    left.bar(edges, everything.counts, width=0.9 / BINS, color=BLUE)
    spread = 1.96 * (expected * (1 - 1 / BINS)) ** 0.5
    left.axhspan(expected - spread, expected + spread, color=GREY, alpha=0.35, lw=0)
    left.axhline(expected, color="black", lw=1)
    left.set_xlabel("where the token lay, ordered by draft / target probability")
    left.set_ylabel("tokens")
    left.set_title(f"{everything.tokens} tokens; flat within the band when exact", fontsize=10)
    groups = [everything, *places]
    names = ["all", *(f"{group.place + 1}" for group in places if group.place is not None)]
    right.axhspan(-1.96, 1.96, color=GREY, alpha=0.35, lw=0)
    right.axhline(0, color="black", lw=1)
    right.plot(range(len(groups)), [group.mean.statistic for group in groups], "o", color=ORANGE)
    right.set_xticks(range(len(groups)), names)
    limit = max(4.5, *(abs(group.mean.statistic) * 1.1 for group in groups))
    right.set_ylim(-limit, limit)
    right.set_xlabel("place of the token in its round")
    right.set_ylabel("mean, in standard errors (z)")
    right.set_title("95 % of them lie in the band when exact", fontsize=10)
    save(figure, path)
