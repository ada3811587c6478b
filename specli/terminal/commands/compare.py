"""`specli compare`: find out whether a draft model makes the target faster here, and for what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from specli.decoding.calibration import CostCurve, measure_costs
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.errors import CheckFailedError, Interrupted, JournalError, OptionError
from specli.evaluation.comparison import LOOKUP, Measurement, measure
from specli.evaluation.journal import VERSION, Journal, read_journal
from specli.evaluation.machine import ModelFacts, model_facts, this_machine
from specli.evaluation.prompts import Prompt, load_prompts
from specli.evaluation.settings import Settings, settings_from, settings_json
from specli.evaluation.summary import OVERALL
from specli.llama.loading import load_models
from specli.llama.model import LlamaModel
from specli.llama.options import LoadOptions
from specli.terminal import console, options, plots
from specli.terminal.command import command
from specli.terminal.commands.compare_report import Comparison, break_evens, facts_json, print_curve, print_header, show
from specli.terminal.commands.models import choose_pair
from specli.terminal.interrupts import Interrupts
from specli.terminal.options import ModelOptions, OutputOptions, read_value, seeded
from specli.terminal.ready import warn_about_gpu

_CURVE_CONTEXT = 256  # tokens in the cache when passes are timed
Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Grid:
    """What is compared: every combination."""

    draft_models: Annotated[
        list[str] | None,
        typer.Option(
            "-md",
            "--draft-model",
            help="Draft model, named like the target; may be repeated. With 'none' drafts are only looked up in the "
            "text.",
            metavar="MODEL",
        ),
    ] = None
    draft_lengths: Annotated[
        str,
        typer.Option("--draft-length", help="Draft lengths or auto; 0 is the baseline once more.", metavar="N,N,..."),
    ] = "auto,4"
    verifications: Annotated[str, typer.Option("--verification", help="Accept rules.", metavar="RULE,RULE,...")] = (
        "block"
    )
    temperatures: Annotated[str, typer.Option("--temp", help="Temperatures.", metavar="T,T,...")] = "0,0.8"


@dataclass(frozen=True, slots=True)
class Effort:
    """How long it is measured."""

    repeats: Annotated[
        int, typer.Option("-r", "--repeats", help="Timed replies to each prompt in each setting.", metavar="N")
    ] = 2
    tokens: Annotated[int, typer.Option("-n", "--max-tokens", help="Tokens of each timed reply.", metavar="N")] = 96
    time_limit: Annotated[
        float,
        typer.Option("--time-limit", help="Start no prompt after so many minutes; 0 is no limit.", metavar="MINUTES"),
    ] = 10.0


@dataclass(frozen=True, slots=True)
class Requirements:
    """What makes the command fail."""

    require_speedup: Annotated[
        float | None,
        typer.Option("--require-speedup", help="Exit 3 unless the best setting is this much faster.", metavar="X"),
    ] = None
    require_identical: Annotated[
        bool,
        typer.Option("--require-identical", help="Exit 3 if a text at temperature 0 differs from the baseline's."),
    ] = False


@command(
    without={"temperature", "logit_bias", "draft_length", "verification", "max_tokens", "stop", "ignore_eos"}
    | {"draft_model"}
)
def compare(
    prompts: options.Prompts = "builtin",
    file: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write each measurement to a file as it is made.", metavar="FILE"),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue what is in the file of -o; its settings hold.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the speedups into a .png or .svg file.", metavar="FILE")
    ] = None,
    curve: Annotated[
        bool, typer.Option("--curve", help="Instead: what passes of 1 to 32 rows and draft tokens cost.")
    ] = False,
    grid: Grid = Grid(),
    effort: Effort = Effort(),
    requirements: Requirements = Requirements(),
    models: ModelOptions = ModelOptions(),
    load: LoadOptions = LoadOptions(),
    reply: ReplyOptions = ReplyOptions(seed=0),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Measure whether a draft model makes the target faster here, by kind of prompt.

    Decoding without drafts and each setting take turns on the same prompts in one process, on an otherwise idle
    machine.

    Examples:
        specli compare

        specli compare --draft-length 2,4,8 --temp 0 --prompts builtin:code,edit

        specli compare -m big.gguf -md small.gguf -md smaller.gguf -o results.jsonl --plot results.png
    """
    done: list[Measurement] = []
    header: dict[str, Any] = {}
    if plot is not None:
        plots.check(plot)
    if resume:
        if file is None:
            raise OptionError("--resume continues a comparison, but no file is named.", "-o FILE names it.")
        header, done = read_journal(file)
        settings = _settings_in(header, file)
        console.note(f"The settings are those of {file}, whatever else is given now.")
    else:
        warn_about_gpu(load)
        settings = _settings(models.model, grid, effort, load, seeded(reply), load_prompts(prompts))
    drafts = [name for name in settings.drafts if name != LOOKUP]
    pairs = [choose_pair(settings.target, name) for name in drafts]
    target_path = choose_pair(settings.target, "none").target

    with Interrupts() as interrupted:
        with console.waiting("Loading") as tell:
            chosen = [(target_path, settings.target_load)]
            chosen += [(pair.draft, settings.draft_load) for pair in pairs if pair.draft is not None]
            loaded = load_models(
                chosen, progress=lambda name, share: tell(f"Loading {name} {share:.0%}"), interrupted=interrupted
            )
        try:
            drafts_by_name = dict(zip(drafts, loaded[1:], strict=True))
            facts = tuple(model_facts(name, one) for name, one in zip((settings.target, *drafts), loaded, strict=True))
            engine = Engine(loaded[0])
            if curve:
                _show_curves(engine, drafts_by_name, settings, facts, interrupted, as_json=output.as_json)
                return
            comparison = Comparison(settings, this_machine(), facts, done)
            if resume and file is not None:
                _check_same(header, comparison, file)
            new = {"settings": settings_json(settings), **facts_json(comparison)}
            journal = None if file is None else Journal(file) if resume else Journal.create(file, new)
            _run(comparison, engine, drafts_by_name, journal, interrupted)
        finally:
            for one in loaded:
                one.close()
    show(comparison, as_json=output.as_json, interrupted=interrupted())
    if plot is not None and comparison.figures:
        plots.save_comparison(settings.arms, comparison.figures, plot)
    if interrupted():
        hint = f"Continue with -o {file} --resume." if journal else "With -o FILE, a comparison can be resumed."
        raise Interrupted(f"interrupted after {len(done)} of {settings.plan.total} measurements.", hint)
    _require(comparison, requirements.require_speedup, identical=requirements.require_identical)


def _settings(
    model: str | None,
    grid: Grid,
    effort: Effort,
    load: LoadOptions,
    reply: ReplyOptions,
    prompts: Sequence[Prompt],
) -> Settings:
    target, drafts = _names(model, grid.draft_models)
    return Settings(
        target=target,
        drafts=tuple(drafts),
        draft_lengths=tuple(dict.fromkeys(read_value("draft_length", part) for part in grid.draft_lengths.split(","))),
        verifications=tuple(dict.fromkeys(grid.verifications.split(","))),
        temperatures=_numbers("--temp", grid.temperatures, float),
        prompts=tuple(prompts),
        repeats=effort.repeats,
        tokens=effort.tokens,
        seed=reply.seed or 0,
        time_limit=effort.time_limit or None,
        sampling=reply.sampling,
        draft_temperature=reply.draft_temperature,
        target_load=load,
        draft_load=load.for_draft(),
    )


def _names(model: str | None, drafts: list[str] | None) -> tuple[str, list[str]]:
    """Return the names of the target and of its draft models, the one that belongs to it if none is given."""
    pair = choose_pair(model, drafts[0] if drafts else None)
    named = [LOOKUP if name == "none" else name for name in drafts or [pair.draft_name or "none"]]
    return pair.target_name, list(dict.fromkeys(named))


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
    before, now = header.get("models"), facts_json(comparison)["models"]
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
        content = {name: asdict(found) | {"break_even": break_evens(found)} for name, found in curves.items()}
        console.print_json({"kind": "curves", "version": VERSION, "curves": content})
        return
    print_header(facts, this_machine(), replace(settings, prompts=()))
    for name, found in curves.items():
        print_curve(name, found)
