"""Plots, drawn with matplotlib, which is optional and loaded only when a plot is asked for."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from specli.errors import MissingExtraError, OptionError
from specli.evaluation.comparison import Configuration
from specli.evaluation.distribution import BINS, DistributionReport
from specli.evaluation.summary import OVERALL, Figures
from specli.state.atomic import replacing

KINDS = (".png", ".svg")
BLUE, ORANGE, GRAY = "#2563a8", "#d2691e", "#8a8f98"
LINES = ("o-", "s--", "^:")
COLORS = (BLUE, ORANGE, "#3a8f5c", "#8a5aa8", "#b8a030")


def check(path: Path) -> None:
    """Reject a plot that could not be drawn or written, before any work is done for it.

    Raises:
        OptionError: the file name ends in something else, or its folder is not writable.
        MissingExtraError: matplotlib is not installed.
    """
    if path.suffix.lower() not in KINDS:
        message = f"--plot is {str(path)!r}, but must end in {' or '.join(KINDS)}."
        raise OptionError(message, "For instance --plot audit.png.")
    if not path.absolute().parent.is_dir() or not os.access(path.absolute().parent, os.W_OK):
        raise OptionError(f"--plot is {str(path)!r}, but its folder cannot be written to.", "Choose another folder.")
    if importlib.util.find_spec("matplotlib") is None:
        hint = "Install it with: python -m pip install 'specli[plot]'"
        raise MissingExtraError("plots need matplotlib, which is not installed.", hint)


def new_figure(width: float, height: float, columns: int = 1) -> tuple[Any, Any]:
    """Return a figure of this size in inches, and its axes from left to right; no display is needed."""
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
    """Draw how the tested values are distributed, with the band that holds 95 % of uniform counts; and by position."""
    figure, (left, right) = new_figure(9, 3.4, columns=2)
    everything, *by_position = report.groups
    expected = everything.tokens / BINS
    edges = (np.arange(BINS) + 0.5) / BINS
    left.bar(edges, everything.counts, width=0.9 / BINS, color=BLUE)
    spread = 1.96 * (expected * (1 - 1 / BINS)) ** 0.5
    left.axhspan(expected - spread, expected + spread, color=GRAY, alpha=0.35, lw=0)
    left.axhline(expected, color="black", lw=1)
    left.set(xlabel="where the token fell, ordered by draft / target probability", ylabel="tokens")
    left.set_title(f"{everything.tokens} tokens; uniform within the band if exact", fontsize=10)
    names = ["all", *(f"{group.position + 1}" for group in by_position if group.position is not None)]
    right.axhspan(-1.96, 1.96, color=GRAY, alpha=0.35, lw=0)
    right.axhline(0, color="black", lw=1)
    right.plot(range(len(names)), [group.mean.statistic for group in report.groups], "o", color=ORANGE)
    right.set_xticks(range(len(names)), names)
    limit = max(4.5, *(abs(group.mean.statistic) * 1.1 for group in report.groups))
    position, mean = "position of the token in its round", "mean, in standard errors (z)"
    right.set(ylim=(-limit, limit), xlabel=position, ylabel=mean)
    right.set_title("95 % of them within the band if exact", fontsize=10)
    save(figure, path)


def save_comparison(configurations: Sequence[Configuration], figures: Sequence[Figures], path: Path) -> None:
    """Draw the speedup by class of prompts with its interval, and the acceptance rate by position in the draft."""
    temperatures = list(dict.fromkeys(one.temperature for one in configurations))
    kinds = list(dict.fromkeys(one.kind for one in figures))
    compared = {
        temperature: [
            index for index, one in enumerate(configurations) if one.temperature == temperature and not one.is_baseline
        ]
        for temperature in temperatures
    }
    most = max(len(indices) for indices in compared.values())
    height = max(3.4, 0.6 + 0.17 * len(kinds) * (most + 1))
    figure, axes = new_figure(4.2 * len(temperatures) + 3.6, height, columns=len(temperatures) + 1)
    for axis, (temperature, indices) in zip(axes[:-1], compared.items(), strict=True):
        _draw_speedups(axis, configurations, indices, kinds, figures)
        axis.set_title(f"temperature {temperature:g}", fontsize=10)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    rates = {one.configuration: one.acceptance_by_position for one in figures if one.kind == OVERALL}
    for line, (temperature, indices) in zip(cycle(LINES), compared.items(), strict=False):
        for number, index in enumerate(indices):
            if rates.get(index):
                positions = range(1, len(rates[index]) + 1)
                axes[-1].plot(positions, rates[index], line, color=COLORS[number % len(COLORS)], ms=4, lw=1.2)
        axes[-1].plot([], [], line, color="black", ms=4, lw=1.2, label=f"temperature {temperature:g}")
    axes[-1].set(ylim=(0, 1.02), xlabel="position in the draft", ylabel="accepted / tested")
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    if any(rates.values()) and len(temperatures) > 1:
        axes[-1].legend(fontsize=8, frameon=False, loc="lower left")
    save(figure, path)


def _draw_speedups(
    axis: Any,
    configurations: Sequence[Configuration],
    indices: Sequence[int],
    kinds: Sequence[str],
    figures: Sequence[Figures],
) -> None:
    """Draw one bar for each class and configuration, from the line of the baseline to the speedup."""
    width = 0.8 / max(1, len(indices))
    for number, index in enumerate(indices):
        found = {one.kind: one.speedup for one in figures if one.configuration == index}
        rows = [row for row, kind in enumerate(kinds) if kind in found]
        speedups = [found[kinds[row]] for row in rows]
        below = [one.estimate - (one.low or one.estimate) for one in speedups]
        above = [(one.high or one.estimate) - one.estimate for one in speedups]
        places = [row + (number - (len(indices) - 1) / 2) * width for row in rows]
        axis.barh(
            places, [one.estimate - 1 for one in speedups], height=0.9 * width, left=1, xerr=(below, above),
            color=COLORS[number % len(COLORS)], error_kw={"lw": 1}, label=configurations[index].name,
        )  # fmt: skip
    axis.axvline(1, color="black", lw=1)
    axis.set_yticks(range(len(kinds)), kinds)
    axis.invert_yaxis()
    axis.set_xlabel("speed, baseline = 1")
