"""How a comparison is shown: tables, a verdict, a chart of costs, and the document of `--json`.

Knows measurements and what was concluded from them. Must not know how they were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specli import __version__
from specli.decoding.calibration import ROWS, CostCurve
from specli.evaluation.comparison import Arm, Measurement, measurement_json
from specli.evaluation.journal import KIND, VERSION
from specli.evaluation.machine import Machine, ModelFacts
from specli.evaluation.settings import Settings, settings_json
from specli.evaluation.summary import OVERALL, Figures, summarise, verdict
from specli.terminal import console


@dataclass
class Comparison:
    """A comparison with what has been measured so far."""

    settings: Settings
    machine: Machine
    models: tuple[ModelFacts, ...]  # the target first
    measurements: list[Measurement]

    @property
    def figures(self) -> list[Figures]:
        """What the measurements say."""
        return summarise(self.settings.arms, self.measurements)

    @property
    def complete(self) -> bool:
        """Whether all that was planned is measured."""
        return len(self.measurements) == self.settings.plan.total


def facts_json(comparison: Comparison) -> dict[str, Any]:
    """Return what a comparison was measured with."""
    return {
        "specli": __version__,
        "machine": asdict(comparison.machine),
        "models": [asdict(model) for model in comparison.models],
        "arms": [asdict(arm) | {"name": arm.name} for arm in comparison.settings.arms],
    }


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Return what `--json` prints; docs/compare.md describes it."""
    return {
        "kind": KIND,
        "version": VERSION,
        "settings": settings_json(comparison.settings),
        **facts_json(comparison),
        "complete": comparison.complete,
        "measurements": [measurement_json(one) for one in comparison.measurements],
        "figures": [asdict(one) for one in comparison.figures],
        "verdict": verdict(comparison.settings.arms, comparison.figures),
    }


def show(comparison: Comparison, *, as_json: bool, interrupted: bool) -> None:
    """Print a comparison."""
    if as_json:
        console.print_json(comparison_json(comparison))
        return
    print_header(comparison.models, comparison.machine, comparison.settings)
    figures = comparison.figures
    for at, arm in enumerate(comparison.settings.arms):
        ours = [one for one in figures if one.arm == at]
        if ours:
            _print_arm(arm, ours)
    for line in verdict(comparison.settings.arms, figures):
        console.print_line(line)
    if not comparison.complete and not interrupted:
        total, here = comparison.settings.plan.total, len(comparison.measurements)
        prompts = len({one.prompt for one in comparison.measurements})
        console.note(
            f"{here} of {total} measurements ({prompts} of {len(comparison.settings.prompts)} prompts) were made; "
            "--time-limit 0 measures all."
        )


def print_header(models: Sequence[ModelFacts], machine: Machine, settings: Settings) -> None:
    """Print what is compared, and where."""
    for role, facts in zip(("target", *["draft"] * len(models)), models, strict=False):
        size, threads = console.bytes_text(facts.bytes), _count(facts.threads, "thread")
        console.print_line(
            f"{role} {facts.name}: {facts.quantization}, {size}, {threads}, "
            f"{'GPU' if facts.gpu else 'CPU'}{', exact mode' if facts.exact else ''}"
        )
    sampling = settings.sampling
    console.print_line(
        f"{machine.processor}, {machine.cores} cores, {machine.system}; llama-cpp-python {machine.llama_cpp_python}; "
        f"top-k {sampling.top_k}, top-p {sampling.top_p:g}, min-p {sampling.min_p:g}; "
        f"{settings.tokens} tokens a reply, {_count(settings.repeats, 'timed turn')}"
    )


def _count(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def _print_arm(arm: Arm, figures: Sequence[Figures]) -> None:
    console.print_line("")
    console.print_line(f"Temperature {arm.temperature:g}: {arm.name}")
    columns = [("prompts", False), ("plain/s", True), ("this/s", True), ("speedup", True), ("95 %", False)]
    columns += [("accepted", True), ("per pass", True), ("draft:check:rest", True), ("prefill", True), ("first", True)]
    greedy = any(one.compared for one in figures)
    if greedy:
        columns.append(("identical", False))
    console.print_table(columns, [_row(one, greedy=greedy) for one in figures])
    overall = next(one for one in figures if one.kind == OVERALL)
    if overall.acceptance_by_place:
        rates = " ".join(f"{rate:.2f}" for rate in overall.acceptance_by_place)
        console.print_line(f"accepted of the tested draft tokens, by place in the draft: {rates}")
    for one in overall.differences:
        console.print_line(f"{one.prompt}: the text differs from token {one.place + 1} on")


def _row(figures: Figures, *, greedy: bool) -> tuple[str, ...]:
    rest = max(0.0, 1 - figures.draft_share - figures.verify_share)
    row = (
        figures.kind,
        f"{figures.plain_tokens_per_second:.1f}",
        f"{figures.tokens_per_second:.1f}",
        f"{figures.speedup.middle:.2f}",
        "" if figures.speedup.low is None else f"{figures.speedup.low:.2f}-{figures.speedup.high:.2f}",
        "" if figures.acceptance_rate is None else f"{100 * figures.acceptance_rate:.0f} %",
        f"{figures.tokens_per_pass:.2f}",
        f"{100 * figures.draft_share:.0f}:{100 * figures.verify_share:.0f}:{100 * rest:.0f}",
        f"{figures.prefill_seconds:.2f} s",
        f"{figures.first_token_seconds:.2f} s",
    )
    same = figures.compared - len(figures.differences)
    return (*row, f"{same} of {figures.compared}") if greedy else row


def break_evens(curve: CostCurve) -> dict[int, float | None]:
    """Return the acceptance from which drafts pay, by draft length."""
    return {rows - 1: curve.break_even(rows - 1) for rows in ROWS if rows > 1}


def print_curve(name: str, curve: CostCurve) -> None:
    """Print what passes cost, as a table with bars."""
    console.print_line("")
    console.print_line(f"One pass of the target after {curve.context} tokens, and from which acceptance drafts pay:")
    longest = max(curve.target.values())
    rows = []
    for size, seconds in curve.target.items():
        needed = curve.break_even(size - 1) if size > 1 and curve.draft else None
        need = "" if size == 1 or curve.draft is None else "never" if needed is None else f"{100 * needed:.0f} %"
        bar = "█" * max(1, round(30 * seconds / longest))
        rows.append((str(size), f"{1000 * seconds:.1f} ms", f"{seconds / curve.target[1]:.2f}", bar, need))
    columns = [("rows", True), ("time", True), ("of one row", True), ("", False), ("draft pays above", True)]
    console.print_table(columns, rows)
    if curve.draft is not None:
        share = curve.draft / curve.target[1]
        console.print_line(f"A draft token of {name}: {1000 * curve.draft:.1f} ms, {share:.2f} of a plain pass.")
