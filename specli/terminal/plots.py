"""Pictures, drawn with matplotlib, which is optional and loaded only when a picture is asked for.

Knows figures and axes. Must not know how a figure's numbers were found.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specli.errors import MissingExtraError, OptionError
from specli.evaluation.comparison import Arm
from specli.evaluation.distribution import BINS, DistributionReport
from specli.evaluation.summary import OVERALL, Figures
from specli.state.atomic import replacing

KINDS = (".png", ".svg")
BLUE, ORANGE, GREY = "#2563a8", "#d2691e", "#8a8f98"
LINES = ("o-", "s--", "^:")
COLOURS = (BLUE, ORANGE, "#3a8f5c", "#8a5aa8", "#b8a030")


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
    with replacing(path) as unfinished:
        figure.savefig(unfinished, dpi=150, facecolor="white")


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


def save_comparison(arms: Sequence[Arm], figures: Sequence[Figures], path: Path) -> None:
    """Draw the speedup by class of prompts with its interval, and acceptance by place in the draft."""
    temperatures = list(dict.fromkeys(arm.temperature for arm in arms))
    kinds = list(dict.fromkeys(one.kind for one in figures))
    most = max(sum(arm.temperature == temperature and not arm.plain for arm in arms) for temperature in temperatures)
    height = max(3.4, 0.6 + 0.17 * len(kinds) * (most + 1))
    figure, axes = new_figure(4.2 * len(temperatures) + 3.6, height, columns=len(temperatures) + 1)
    for axis, temperature in zip(axes[:-1], temperatures, strict=True):
        ours = [at for at, arm in enumerate(arms) if arm.temperature == temperature and not arm.plain]
        _draw_speedups(axis, arms, ours, kinds, figures)
        axis.set_title(f"temperature {temperature:g}", fontsize=10)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    for at, arm in enumerate(arms):
        overall = next((one for one in figures if one.arm == at and one.kind == OVERALL), None)
        if overall is not None and overall.acceptance_by_place:
            places = range(1, len(overall.acceptance_by_place) + 1)
            number = [other for other in arms if other.temperature == arm.temperature and not other.plain].index(arm)
            axes[-1].plot(
                places,
                overall.acceptance_by_place,
                LINES[temperatures.index(arm.temperature) % len(LINES)],
                color=COLOURS[number % len(COLOURS)],
                ms=4,
                lw=1.2,
            )
    axes[-1].set_ylim(0, 1.02)
    axes[-1].set_xlabel("place in the draft")
    axes[-1].set_ylabel("accepted / tested")
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    if axes[-1].lines and len(temperatures) > 1:
        for temperature, line in zip(temperatures, LINES, strict=False):
            axes[-1].plot([], [], line, color="black", ms=4, lw=1.2, label=f"temperature {temperature:g}")
        axes[-1].legend(fontsize=8, frameon=False, loc="lower left")
    save(figure, path)


def _draw_speedups(
    axis: Any, arms: Sequence[Arm], ours: Sequence[int], kinds: Sequence[str], figures: Sequence[Figures]
) -> None:
    """Draw one bar for each class and arm, from the line of plain decoding to the speedup."""
    width = 0.8 / max(1, len(ours))
    for number, at in enumerate(ours):
        found = {one.kind: one.speedup for one in figures if one.arm == at}
        rows = [row for row, kind in enumerate(kinds) if kind in found]
        middles = [found[kinds[row]].middle for row in rows]
        below = [found[kinds[row]].middle - (found[kinds[row]].low or found[kinds[row]].middle) for row in rows]
        above = [(found[kinds[row]].high or found[kinds[row]].middle) - found[kinds[row]].middle for row in rows]
        places = [row + (number - (len(ours) - 1) / 2) * width for row in rows]
        axis.barh(
            places,
            [middle - 1 for middle in middles],
            height=0.9 * width,
            left=1,
            xerr=(below, above),
            color=COLOURS[number % len(COLOURS)],
            error_kw={"lw": 1},
            label=arms[at].name,
        )
    axis.axvline(1, color="black", lw=1)
    axis.set_yticks(range(len(kinds)), kinds)
    axis.invert_yaxis()
    axis.set_xlabel("speed, plain decoding = 1")
