"""How a comparison is shown: tables, a verdict, and a chart of what passes cost."""

from __future__ import annotations

from collections.abc import Sequence

from specli.decoding.costs import ROWS, PassCosts
from specli.evaluation.comparison import Configuration
from specli.evaluation.machine import Machine, ModelFacts
from specli.evaluation.settings import Settings, filters_text
from specli.evaluation.summary import OVERALL, Comparison, Figures, comparison_json, verdict
from specli.terminal import console


def show(comparison: Comparison, *, as_json: bool, interrupted: bool) -> None:
    """Print a comparison."""
    if as_json:
        console.print_json(comparison_json(comparison))
        return
    print_header(comparison.models, comparison.machine, comparison.settings)
    figures = comparison.figures
    for index, configuration in enumerate(comparison.settings.configurations):
        ours = [one for one in figures if one.configuration == index]
        if ours:
            _print_configuration(configuration, ours)
    console.print_lines(verdict(comparison.settings.configurations, figures))
    if not comparison.complete and not interrupted:
        total, here = comparison.settings.plan.total, len(comparison.measurements)
        prompts = len({one.prompt for one in comparison.measurements})
        console.note(
            f"{here} of {total} measurements were made ({prompts} of {len(comparison.settings.prompts)} prompts); "
            "--time-limit 0 makes all of them."
        )


def print_header(models: Sequence[ModelFacts], machine: Machine, settings: Settings) -> None:
    """Print what is compared, and where."""
    for role, facts in zip(("target", *["draft"] * len(models)), models, strict=False):
        size, threads = console.bytes_text(facts.bytes), _count(facts.threads, "thread")
        console.print_line(
            f"{role} {facts.name}: {facts.quantization}, {size}, {threads}, "
            f"{'GPU' if facts.gpu else 'CPU'}{', exact mode' if facts.exact else ''}"
            f"{facts.loading and ', '}{facts.loading}"
        )
    drafter = "" if settings.drafter == "auto" else f"drafter {settings.drafter}, "
    console.print_line(
        f"{machine.processor}, {machine.cores} cores, {machine.system}; llama-cpp-python {machine.llama_cpp_python}; "
        f"{drafter}{filters_text(settings.sampling)}, seed {settings.seed}; "
        f"{settings.tokens} tokens per reply, {_count(settings.repeats, 'timed turn')}"
    )


def _count(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def _print_configuration(configuration: Configuration, figures: Sequence[Figures]) -> None:
    console.print_lines(["", f"Temperature {configuration.temperature:g}: {configuration.name}"])
    titles = ["prompts", "baseline/s", "this/s", "speedup", "95 %", "accepted", "per pass", "draft:check:rest"]
    titles += ["prefill", "first"]
    greedy = any(one.compared for one in figures)
    if greedy:
        titles.append("identical")
    console.print_table(titles, [_row(one, greedy=greedy) for one in figures])
    overall = next(one for one in figures if one.kind == OVERALL)
    if overall.acceptance_by_position:
        rates = " ".join(f"{rate:.2f}" for rate in overall.acceptance_by_position)
        console.print_line(f"acceptance by position in the draft: {rates}")
    for one in overall.differences:
        console.print_line(f"{one.prompt}: the texts differ from token {one.position + 1} on")


def _row(figures: Figures, *, greedy: bool) -> tuple[str, ...]:
    rest = max(0.0, 1 - figures.draft_share - figures.verify_share)
    row = (
        figures.kind,
        f"{figures.baseline_tokens_per_second:.1f}",
        f"{figures.tokens_per_second:.1f}",
        f"{figures.speedup.estimate:.2f}",
        "" if figures.speedup.low is None else f"{figures.speedup.low:.2f}-{figures.speedup.high:.2f}",
        "" if figures.acceptance_rate is None else f"{100 * figures.acceptance_rate:.0f} %",
        f"{figures.tokens_per_pass:.2f}",
        f"{100 * figures.draft_share:.0f}:{100 * figures.verify_share:.0f}:{100 * rest:.0f}",
        f"{figures.prefill_seconds:.2f} s",
        f"{figures.first_token_seconds:.2f} s",
    )
    same = figures.compared - len(figures.differences)
    return (*row, f"{same} of {figures.compared}") if greedy else row


def break_evens(curve: PassCosts) -> dict[int, float | None]:
    """Return the acceptance rate above which drafting is faster, by draft length."""
    return {rows - 1: curve.break_even(rows - 1) for rows in ROWS if rows > 1}


def print_curve(name: str, curve: PassCosts) -> None:
    """Print what passes cost, as a table with bars."""
    console.print_line("")
    console.print_line(
        f"One pass of the target after {curve.context} tokens, and the acceptance rate above which drafting is faster:"
    )
    longest = max(curve.target.values())
    rows = []
    for size, seconds in curve.target.items():
        needed = curve.break_even(size - 1) if size > 1 and curve.draft else None
        need = "" if size == 1 or curve.draft is None else "never" if needed is None else f"{100 * needed:.0f} %"
        bar = "█" * max(1, round(30 * seconds / longest))
        rows.append((str(size), f"{1000 * seconds:.1f} ms", f"{seconds / curve.target[1]:.2f}", bar, need))
    console.print_table(["rows", "time", "vs. one row", "", "faster above"], rows)
    if curve.draft is not None:
        share = curve.draft / curve.target[1]
        console.print_line(
            f"A draft token of {name}: {1000 * curve.draft:.1f} ms, {share:.2f} of a one-row pass of the target."
        )
