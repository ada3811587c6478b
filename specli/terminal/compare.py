"""`specli compare`: find out whether a draft model makes the target faster here, and for what.

Knows options, and how results are shown. Must not know how they are measured or computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from specli import __version__
from specli.decoding.calibration import ROWS, CostCurve, measure_costs
from specli.engine import Engine, load_models
from specli.errors import CheckFailedError, Interrupted, JournalError, OptionError
from specli.evaluation.comparison import Arm, Measurement, measure, measurement_json
from specli.evaluation.journal import KIND, VERSION, Journal, read_journal
from specli.evaluation.machine import Machine, ModelFacts, model_facts, this_machine
from specli.evaluation.prompts import load_prompts
from specli.evaluation.settings import Settings, settings_from, settings_json
from specli.evaluation.summary import OVERALL, Figures, summarise, verdict
from specli.llama.model import LlamaModel
from specli.terminal import console, options, plots
from specli.terminal.interrupts import Interrupts
from specli.terminal.models import choose_pair, load_options

_TIME_LIMIT = 10.0
_CURVE_CONTEXT = 256  # tokens in the cache when passes are timed
Number = TypeVar("Number", int, float)


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


def compare(
    model: options.Target = None,
    draft_models: Annotated[
        list[str] | None,
        typer.Option(
            "-md", "--draft-model", help="Draft model, named like the target; may be repeated.", metavar="MODEL"
        ),
    ] = None,
    draft_lengths: Annotated[
        str,
        typer.Option(
            "--draft-length", help="Draft lengths, auto being one; 0 is plain decoding once more.", metavar="N,N,..."
        ),
    ] = "auto,4",
    verifications: Annotated[
        str, typer.Option("--verification", help="Accept rules.", metavar="RULE,RULE,...")
    ] = "block",
    temperatures: Annotated[str, typer.Option("--temp", help="Temperatures.", metavar="T,T,...")] = "0,0.8",
    prompts: options.Prompts = "builtin",
    repeats: Annotated[
        int, typer.Option("-r", "--repeats", help="Timed replies to each prompt in each setting.", metavar="N")
    ] = 2,
    max_tokens: Annotated[
        int, typer.Option("-n", "--max-tokens", help="Tokens of each timed reply.", metavar="N")
    ] = 96,
    time_limit: Annotated[
        float,
        typer.Option("--time-limit", help="Start no prompt after so many minutes; 0 is no limit.", metavar="MINUTES"),
    ] = _TIME_LIMIT,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write each measurement to a file as it is made.", metavar="FILE"),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", help="Go on with what -o wrote; the settings are those in the file.", metavar="FILE"),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the speedups into a .png or .svg file.", metavar="FILE")
    ] = None,
    curve: Annotated[
        bool, typer.Option("--curve", help="Instead: what passes of 1 to 32 rows and draft tokens cost.")
    ] = False,
    require_speedup: Annotated[
        float | None,
        typer.Option("--require-speedup", help="Exit 3 unless the best setting is this much faster.", metavar="X"),
    ] = None,
    require_identical: Annotated[
        bool, typer.Option("--require-identical", help="Exit 3 if a text at temperature 0 differs from the plain one.")
    ] = False,
    context: options.Context = None,
    batch: options.Batch = 512,
    threads: options.Threads = None,
    gpu_layers: options.GpuLayers = None,
    draft_gpu_layers: options.DraftGpuLayers = None,
    exact: options.Exact = False,
    draft_temperature: options.DraftTemperature = None,
    top_k: options.TopK = 40,
    top_p: options.TopP = 0.95,
    min_p: options.MinP = 0.05,
    repeat_penalty: options.RepeatPenalty = 1.0,
    frequency_penalty: options.FrequencyPenalty = 0.0,
    presence_penalty: options.PresencePenalty = 0.0,
    repeat_last_n: options.RepeatLastN = 64,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> None:
    """Measure whether a draft model makes the target faster on this machine, by kind of prompt.

    Plain decoding and each setting take turns on the same prompts in one process. Let nothing else run meanwhile.

    Examples:
        specli compare

        specli compare --draft-length 2,4,8 --temp 0 --prompts builtin:code,edit

        specli compare -m big.gguf -md small.gguf -md smaller.gguf -o results.jsonl --plot results.png
    """
    done: list[Measurement] = []
    header: dict[str, Any] = {}
    if plot is not None:
        plots.check(plot)
    if resume is not None:
        header, done = read_journal(resume)
        settings = _settings_in(header, resume)
    else:
        sampling = options.sampling_options(
            temperature=0.0,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repeat_penalty=repeat_penalty,
            frequency_penalty=frequency_penalty,
            presence_penalty=presence_penalty,
            repeat_last_n=repeat_last_n,
            logit_bias=None,
        )
        target_load, draft_load = load_options(context, batch, threads, gpu_layers, draft_gpu_layers, exact=exact)
        target, drafts = _names(model, draft_models)
        settings = Settings(
            target=target,
            drafts=tuple(drafts),
            draft_lengths=tuple(dict.fromkeys(options.draft_length(part) for part in draft_lengths.split(","))),
            verifications=tuple(dict.fromkeys(verifications.split(","))),
            temperatures=_numbers("--temp", temperatures, float),
            prompts=tuple(load_prompts(prompts)),
            repeats=repeats,
            tokens=max_tokens,
            seed=max(seed, 0),
            time_limit=time_limit or None,
            sampling=sampling,
            draft_temperature=draft_temperature,
            target_load=target_load,
            draft_load=draft_load,
        )
    pairs = [choose_pair(settings.target, draft) for draft in settings.drafts]
    target_path = choose_pair(settings.target, "none").target

    with Interrupts() as interrupted:
        with console.waiting("Loading") as show:
            chosen = [(target_path, settings.target_load)]
            chosen += [(pair.draft, settings.draft_load) for pair in pairs if pair.draft is not None]
            loaded = load_models(
                chosen, progress=lambda name, share: show(f"Loading {name} {share:.0%}"), interrupted=interrupted
            )
        try:
            drafts_by_name = dict(zip(settings.drafts, loaded[1:], strict=True))
            facts = tuple(
                model_facts(name, one) for name, one in zip((settings.target, *settings.drafts), loaded, strict=True)
            )
            engine = Engine(loaded[0])
            if curve:
                _show_curves(engine, drafts_by_name, settings, facts, interrupted, as_json=as_json)
                return
            comparison = Comparison(settings, this_machine(), facts, done)
            if resume is not None:
                _check_same(header, comparison, resume)
            new = {"settings": settings_json(settings), **_facts_json(comparison)}
            journal = Journal(resume) if resume else Journal.create(output, new) if output else None
            _run(comparison, engine, drafts_by_name, journal, interrupted)
        finally:
            for one in loaded:
                one.close()
    _show(comparison, as_json=as_json, interrupted=interrupted())
    if plot is not None and comparison.figures:
        plots.save_comparison(settings.arms, comparison.figures, plot)
    if interrupted():
        hint = f"Go on with --resume {resume or output}." if journal else "With -o FILE, a comparison can be resumed."
        raise Interrupted(f"interrupted after {len(done)} of {settings.plan.total} measurements.", hint)
    _require(comparison, require_speedup, identical=require_identical)


def _names(model: str | None, drafts: list[str] | None) -> tuple[str, list[str]]:
    """Return the names of the target and of its draft models, the one that belongs to it if none is given."""
    pair = choose_pair(model, drafts[0] if drafts else None)
    if drafts == ["none"] or pair.draft_name is None:
        return pair.target_name, []
    return pair.target_name, list(dict.fromkeys(drafts)) if drafts else [pair.draft_name]


def _numbers(flag: str, text: str, kind: type[Number]) -> tuple[Number, ...]:
    try:
        return tuple(dict.fromkeys(kind(part) for part in text.split(",")))
    except ValueError:
        raise OptionError(
            f"{flag} is {text!r}, but must be numbers with commas between them.", f"For instance {flag} 2,4."
        ) from None


def _settings_in(header: dict[str, Any], path: Path) -> Settings:
    try:
        return settings_from(header["settings"])
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise JournalError(
            f"{path} has settings that this version cannot read: {error}.", "Start a new comparison with -o."
        ) from None


def _check_same(header: dict[str, Any], comparison: Comparison, path: Path) -> None:
    """Refuse to go on with other models than the file's."""
    before, now = header.get("models"), _facts_json(comparison)["models"]
    if before != now:
        raise JournalError(
            f"the models are not those that {path} was measured with.", "Start a new comparison with -o."
        )


def _run(
    comparison: Comparison,
    engine: Engine,
    drafts: dict[str, LlamaModel],
    journal: Journal | None,
    interrupted: Callable[[], bool],
) -> None:
    settings = comparison.settings
    with console.counting("Measuring") as progress:
        for measurement in measure(
            engine,
            drafts,
            settings.plan,
            settings.reply,
            tuple(comparison.measurements),
            seconds=60 * settings.time_limit if settings.time_limit else None,
            progress=progress,
            interrupted=interrupted,
        ):
            comparison.measurements.append(measurement)
            if journal is not None:
                journal.add(measurement)


def _facts_json(comparison: Comparison) -> dict[str, Any]:
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
        **_facts_json(comparison),
        "complete": comparison.complete,
        "measurements": [measurement_json(one) for one in comparison.measurements],
        "figures": [asdict(one) for one in comparison.figures],
        "verdict": verdict(comparison.settings.arms, comparison.figures),
    }


def _show(comparison: Comparison, *, as_json: bool, interrupted: bool) -> None:
    if as_json:
        console.print_json(comparison_json(comparison))
        return
    _print_header(comparison.models, comparison.machine, comparison.settings)
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


def _print_header(models: Sequence[ModelFacts], machine: Machine, settings: Settings) -> None:
    for role, facts in zip(("target", *["draft"] * len(models)), models, strict=False):
        console.print_line(
            f"{role} {facts.name}: {facts.quantisation}, {console.bytes_text(facts.bytes)}, {facts.threads} threads, "
            f"{'GPU' if facts.gpu else 'CPU'}{', exact mode' if facts.exact else ''}"
        )
    sampling = settings.sampling
    console.print_line(
        f"{machine.processor}, {machine.cores} cores, {machine.system}; llama-cpp-python {machine.llama_cpp_python}; "
        f"top-k {sampling.top_k}, top-p {sampling.top_p:g}, min-p {sampling.min_p:g}; "
        f"{settings.tokens} tokens a reply, {settings.repeats} timed turns"
    )


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
        f"{figures.speedup.low:.2f}-{figures.speedup.high:.2f}",
        "" if figures.acceptance_rate is None else f"{100 * figures.acceptance_rate:.0f} %",
        f"{figures.tokens_per_pass:.2f}",
        f"{100 * figures.draft_share:.0f}:{100 * figures.verify_share:.0f}:{100 * rest:.0f}",
        f"{figures.prefill_seconds:.2f} s",
        f"{figures.first_token_seconds:.2f} s",
    )
    same = figures.compared - len(figures.differences)
    return (*row, f"{same} of {figures.compared}") if greedy else row


def _require(comparison: Comparison, speedup: float | None, *, identical: bool) -> None:
    arms = comparison.settings.arms
    overall = [one for one in comparison.figures if one.kind == OVERALL]
    different = {difference.prompt for one in overall for difference in one.differences}
    if identical and different:
        raise CheckFailedError(
            f"the text differs from the plain one for {len(different)} prompts: {', '.join(sorted(different))}.",
            "'--exact' makes texts identical on a CPU.",
        )
    if speedup is None:
        return
    for temperature in comparison.settings.temperatures:
        best = max(
            (one for one in overall if arms[one.arm].temperature == temperature),
            key=lambda one: one.speedup.middle,
            default=None,
        )
        if best is None or best.speedup.middle < speedup:
            reached = f"{best.speedup.middle:.2f}" if best else "not measured"
            raise CheckFailedError(
                f"the speedup at temperature {temperature:g} is {reached}, but --require-speedup is {speedup:g}.",
                "The lines above say what limits it.",
            )


def _show_curves(
    engine: Engine,
    drafts: dict[str, LlamaModel],
    settings: Settings,
    facts: Sequence[ModelFacts],
    interrupted: Callable[[], bool],
    *,
    as_json: bool,
) -> None:
    text = [token for prompt in settings.prompts[:4] for token in engine.conversation(prompt.messages)]
    text = (text * (_CURVE_CONTEXT // len(text) + 1))[:_CURVE_CONTEXT]
    curves: dict[str, CostCurve] = {}
    candidates: dict[str, LlamaModel | None] = {**drafts} or {"none": None}
    for name, draft in candidates.items():
        with console.counting(f"Passes of {settings.target} and {name}") as progress:
            found = measure_costs(engine.target, draft, text, progress=progress, interrupted=interrupted)
        if found is None:
            raise Interrupted
        curves[name] = found
    if as_json:
        content = {name: asdict(found) | {"break_even": _break_evens(found)} for name, found in curves.items()}
        console.print_json({"kind": "curves", "version": VERSION, "curves": content})
        return
    _print_header(facts, this_machine(), replace(settings, prompts=()))
    for name, found in curves.items():
        _print_curve(name, found)


def _break_evens(curve: CostCurve) -> dict[int, float | None]:
    return {rows - 1: curve.break_even(rows - 1) for rows in ROWS if rows > 1}


def _print_curve(name: str, curve: CostCurve) -> None:
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
