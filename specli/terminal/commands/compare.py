"""`specli compare`: find out whether a draft model makes the target faster here, and for what.

Knows options, and how results are shown. Must not know how they are measured or computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from specli.decoding.costs import PassCosts, measure_costs
from specli.engine.engine import Engine, load_models
from specli.errors import CheckFailedError, Interrupted, JournalError, OptionError
from specli.evaluation.comparison import LOOKUP, Measurement, measure
from specli.evaluation.journal import VERSION, Journal, read_journal
from specli.evaluation.machine import ModelFacts, model_facts, this_machine
from specli.evaluation.prompts import load_prompts
from specli.evaluation.settings import Settings, settings_from, settings_json
from specli.evaluation.summary import OVERALL
from specli.llama.model import LlamaModel
from specli.terminal import console, options, plots
from specli.terminal.commands.compare_report import Comparison, break_evens, facts_json, print_curve, print_header, show
from specli.terminal.commands.models import choose_pair, load_options
from specli.terminal.interrupts import Interrupts

_TIME_LIMIT = 10.0
_CURVE_CONTEXT = 256  # tokens in the cache when passes are timed
Number = TypeVar("Number", int, float)


def compare(
    model: options.Target = None,
    draft_models: Annotated[
        list[str] | None,
        typer.Option(
            "-md",
            "--draft-model",
            help="Draft model, named like the target; may be repeated. 'none' looks drafts up in the text.",
            metavar="MODEL",
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
        if output is not None:
            raise OptionError(
                f"-o is {str(output)!r}, but a resumed comparison goes on in its own file.", "Leave out -o."
            )
        header, done = read_journal(resume)
        settings = _settings_in(header, resume)
        console.note(f"The settings are those of {resume}, whatever else is given now.")
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
    models = [name for name in settings.drafts if name != LOOKUP]
    pairs = [choose_pair(settings.target, name) for name in models]
    target_path = choose_pair(settings.target, "none").target

    with Interrupts() as interrupted:
        with console.waiting("Loading") as tell:
            chosen = [(target_path, settings.target_load)]
            chosen += [(pair.draft, settings.draft_load) for pair in pairs if pair.draft is not None]
            loaded = load_models(
                chosen, progress=lambda name, share: tell(f"Loading {name} {share:.0%}"), interrupted=interrupted
            )
        try:
            drafts_by_name = dict(zip(models, loaded[1:], strict=True))
            facts = tuple(model_facts(name, one) for name, one in zip((settings.target, *models), loaded, strict=True))
            engine = Engine(loaded[0])
            if curve:
                _show_curves(engine, drafts_by_name, settings, facts, interrupted, as_json=as_json)
                return
            comparison = Comparison(settings, this_machine(), facts, done)
            if resume is not None:
                _check_same(header, comparison, resume)
            new = {"settings": settings_json(settings), **facts_json(comparison)}
            journal = Journal(resume) if resume else Journal.create(output, new) if output else None
            _run(comparison, engine, drafts_by_name, journal, interrupted)
        finally:
            for one in loaded:
                one.close()
    show(comparison, as_json=as_json, interrupted=interrupted())
    if plot is not None and comparison.figures:
        plots.save_comparison(settings.arms, comparison.figures, plot)
    if interrupted():
        hint = f"Go on with --resume {resume or output}." if journal else "With -o FILE, a comparison can be resumed."
        raise Interrupted(f"interrupted after {len(done)} of {settings.plan.total} measurements.", hint)
    _require(comparison, require_speedup, identical=require_identical)


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
    curves: dict[str, PassCosts] = {}
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
