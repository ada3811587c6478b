"""What `specli compare` does: models are loaded, everything takes turns, and what was measured is kept and shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from specli.decoding.costs import PassCosts, measure_costs
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.errors import CheckFailedError, Interrupted, JournalError, OptionError
from specli.evaluation.comparison import LOOKUP, Measurement, measure
from specli.evaluation.journal import VERSION, Header, Journal, read_journal
from specli.evaluation.machine import ModelFacts, model_facts, this_machine
from specli.evaluation.prompts import Prompt
from specli.evaluation.settings import Settings
from specli.evaluation.summary import OVERALL, Comparison, facts_json
from specli.llama.loading import load_models
from specli.llama.model import LlamaModel
from specli.llama.options import LoadOptions
from specli.terminal import console, plots
from specli.terminal.commands.compare_report import break_evens, print_curve, print_header, show
from specli.terminal.commands.models import choose_pair
from specli.terminal.interrupts import Interrupts
from specli.terminal.options import Effort, Grid, Requirements, read_value

_CURVE_CONTEXT = 256  # tokens in the cache when passes are timed


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be compared, where it is written, and what is written there already."""

    settings: Settings
    file: Path | None = None
    header: Header | None = None  # of the file, if it is continued
    done: list[Measurement] = field(default_factory=list)


def settings_of(
    model: str | None, grid: Grid, effort: Effort, load: LoadOptions, reply: ReplyOptions, prompts: Sequence[Prompt]
) -> Settings:
    """Return what is to be compared, every combination checked.

    Raises:
        OptionError: a value cannot be used.
        SpecliError: a model is unknown or cannot be fetched.
    """
    without = reply.drafter == "lookup"
    target, drafts = _names(model, grid.draft_models or (["none"] if without else None))
    return Settings(
        target=target,
        drafts=tuple(drafts),
        draft_lengths=tuple(dict.fromkeys(read_value("draft_length", part) for part in grid.draft_lengths.split(","))),
        verifications=tuple(dict.fromkeys(grid.verifications.split(","))),
        temperatures=_temperatures(grid.temperatures),
        prompts=tuple(prompts),
        repeats=effort.repeats,
        tokens=effort.tokens,
        seed=reply.seed or 0,
        time_limit=effort.time_limit or None,
        sampling=reply.sampling,
        draft_temperature=reply.draft_temperature,
        drafter=reply.drafter,
        target_load=load,
        draft_load=load.for_draft(),
    )


def _names(model: str | None, drafts: list[str] | None) -> tuple[str, list[str]]:
    """Return the names of the target and of its draft models, the one that belongs to it if none is given."""
    pair = choose_pair(model, drafts[0] if drafts else None)
    named = [LOOKUP if name == "none" else name for name in drafts or [pair.draft_name or "none"]]
    return pair.target_name, list(dict.fromkeys(named))


def _temperatures(text: str) -> tuple[float, ...]:
    try:
        return tuple(dict.fromkeys(map(float, text.split(","))))
    except ValueError:
        message = f"--temp is {text!r}, but must be numbers with commas between them."
        raise OptionError(message, "For instance 0,1.") from None


def resumed(file: Path) -> Task:
    """Return what is left of the comparison in a file.

    Raises:
        JournalError: it cannot be read.
    """
    header, done = read_journal(file)
    console.note(f"The settings are those of {file}, whatever else is given now.")
    return Task(header.settings, file, header, done)


@contextmanager
def _loaded(
    settings: Settings, interrupted: Callable[[], bool]
) -> Iterator[tuple[Engine, dict[str, LlamaModel], tuple[ModelFacts, ...]]]:
    """Load the target as an engine, and its draft models by name; all of them are described, the target first."""
    names = [name for name in settings.drafts if name != LOOKUP]
    pairs = [choose_pair(settings.target, name) for name in names]
    chosen = [(choose_pair(settings.target, "none").target, settings.target_load)]
    chosen += [(pair.draft, settings.draft_load) for pair in pairs if pair.draft is not None]
    with console.waiting("Loading") as tell:
        models = load_models(
            chosen, progress=lambda name, share: tell(f"Loading {name} {share:.0%}"), interrupted=interrupted
        )
    try:
        facts = tuple(model_facts(name, one) for name, one in zip((settings.target, *names), models, strict=True))
        yield Engine(models[0]), dict(zip(names, models[1:], strict=True)), facts
    finally:
        for one in models:
            one.close()


def run(task: Task, requirements: Requirements, plot: Path | None, *, as_json: bool) -> None:
    """Measure what is left to be measured, and show all of it.

    Raises:
        Interrupted: Ctrl-C was pressed; what was measured is shown first.
        CheckFailedError: a requirement is not met.
        SpecliError: models or file cannot be used.
    """
    settings, file = task.settings, task.file
    with Interrupts() as interrupted, _loaded(settings, interrupted) as (engine, drafts, facts):
        comparison = Comparison(settings, this_machine(), facts, task.done)
        if task.header is not None and task.header.models != facts:
            message = f"the models are not those that {file} was measured with."
            raise JournalError(message, "Start a new comparison with -o.")
        new = {"settings": asdict(settings), **facts_json(comparison)}
        journal = None if file is None else Journal(file) if task.header is not None else Journal.create(file, new)
        seconds = 60 * settings.time_limit if settings.time_limit else None
        with console.counting("Measuring") as progress:
            for measurement in measure(
                engine, drafts, settings.plan, settings.reply, tuple(task.done),
                seconds=seconds, progress=progress, interrupted=interrupted,
            ):  # fmt: skip
                comparison.measurements.append(measurement)
                if journal is not None:
                    journal.add(measurement)
    show(comparison, as_json=as_json, interrupted=interrupted())
    if plot is not None and comparison.figures:
        plots.save_comparison(settings.configurations, comparison.figures, plot)
    if interrupted():
        hint = f"Continue with -o {file} --resume." if journal else "With -o FILE, a comparison can be resumed."
        raise Interrupted(f"interrupted after {len(task.done)} of {settings.plan.total} measurements.", hint)
    _require(comparison, requirements.require_speedup, identical=requirements.require_identical)


def _require(comparison: Comparison, speedup: float | None, *, identical: bool) -> None:
    configurations = comparison.settings.configurations
    overall = [one for one in comparison.figures if one.kind == OVERALL]
    different = {difference.prompt for one in overall for difference in one.differences}
    if identical and different:
        message = f"the text differs from the baseline's for {len(different)} prompts: {', '.join(sorted(different))}."
        raise CheckFailedError(message, "'--exact' makes texts identical on a CPU.")
    if speedup is None:
        return
    for temperature in comparison.settings.temperatures:
        best = max(
            (one for one in overall if configurations[one.configuration].temperature == temperature),
            key=lambda one: one.speedup.estimate,
            default=None,
        )
        if best is None or best.speedup.estimate < speedup:
            reached = f"{best.speedup.estimate:.2f}" if best else "not measured"
            message = f"the speedup at temperature {temperature:g} is {reached}, but --require-speedup is {speedup:g}."
            raise CheckFailedError(message, "The lines above say what limits it.")


def show_curves(task: Task, *, as_json: bool) -> None:
    """Measure and show what passes cost."""
    settings = task.settings
    curves: dict[str, PassCosts] = {}
    with Interrupts() as interrupted, _loaded(settings, interrupted) as (engine, drafts, facts):
        text = [token for prompt in settings.prompts[:4] for token in engine.conversation(prompt.messages)]
        text = (text * (_CURVE_CONTEXT // len(text) + 1))[:_CURVE_CONTEXT]
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
