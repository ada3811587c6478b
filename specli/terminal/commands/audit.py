"""`specli audit`: find out whether the draft changes the output.

Knows options, and how a finding is put into words. Must not know how it is found.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from specli import __version__
from specli.engine.engine import Engine
from specli.engine.reply import ReplyOptions
from specli.errors import CHECK_FAILED, Interrupted, OptionError, SpecliError
from specli.evaluation.distribution import (
    BINS,
    SIGNIFICANCE,
    DistributionReport,
    distribution_lines,
    judge,
    sample_tokens,
)
from specli.evaluation.identity import IdentityReport, identity_audit, identity_lines
from specli.evaluation.joint import JointReport, joint_audit, joint_lines
from specli.evaluation.prompts import Prompt, load_prompts
from specli.evaluation.settings import reply_text
from specli.llama.model import has_gpu_backend
from specli.terminal import console, options, plots
from specli.terminal.commands.models import Pair, choose_pair, load_options
from specli.terminal.interrupts import Interrupts

JSON_VERSION = 1
_SAMPLES, _JOINT_SAMPLES = 3500, 2000


class Part(StrEnum):
    """The parts of an audit."""

    ALL = "all"
    DISTRIBUTION = "distribution"
    IDENTITY = "identity"


@dataclass
class Findings:
    """What an audit has found out; a part that was not asked for is None."""

    distribution: DistributionReport | None = None
    joint: JointReport | None = None
    identity: IdentityReport | None = None

    @property
    def found(self) -> bool:
        """Whether anything is wrong."""
        biased = any(report is not None and report.found for report in (self.distribution, self.joint))
        return biased or (self.identity is not None and bool(self.identity.unexplained))


def audit(
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples",
            help=f"Tokens to test; with --joint, replies. Default: {_SAMPLES}, with --joint {_JOINT_SAMPLES}.",
            metavar="N",
        ),
    ] = None,
    part: Annotated[
        Part, typer.Option("--part", help="Only the test of probabilities, or only that of identical texts.")
    ] = Part.ALL,
    control: Annotated[
        bool,
        typer.Option("--control", help="Test a rule that is wrong on purpose: a bias must be found, with exit code 3."),
    ] = False,
    joint: Annotated[
        bool,
        typer.Option(
            "--joint",
            help="Instead: the first tokens of many replies to one prompt, against their exact probabilities.",
        ),
    ] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the tested values into a .png or .svg file.", metavar="FILE")
    ] = None,
    prompts: options.Prompts = "builtin",
    max_tokens: options.MaxTokens = 64,
    model: options.Target = None,
    draft_model: options.DraftModel = None,
    context: options.Context = None,
    batch: options.Batch = 512,
    threads: options.Threads = None,
    gpu_layers: options.GpuLayers = None,
    draft_gpu_layers: options.DraftGpuLayers = None,
    exact: options.Exact = False,
    draft_length: options.DraftLength = "4",
    verification: options.Verification = "block",
    draft_temperature: options.DraftTemperature = None,
    temperature: options.Temperature = 0.8,
    top_k: options.TopK = 40,
    top_p: options.TopP = 0.95,
    min_p: options.MinP = 0.05,
    repeat_penalty: options.RepeatPenalty = 1.0,
    frequency_penalty: options.FrequencyPenalty = 0.0,
    presence_penalty: options.PresencePenalty = 0.0,
    repeat_last_n: options.RepeatLastN = 64,
    logit_bias: options.LogitBias = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> None:
    """Check that the draft does not change the output; exit 3 when it does.

    Two parts. Every token of ordinary replies is compared with the
    target's own probabilities, computed again without any speculation.
    And at temperature 0, texts with and without the draft are compared
    token by token. About five minutes with the default pair on two cores.

    Examples:
        specli audit

        specli audit --temp 1 --top-k 0 --top-p 1 --min-p 0 --verification token

        specli audit --control
    """
    sampling = options.sampling_options(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repeat_penalty=repeat_penalty,
        frequency_penalty=frequency_penalty,
        presence_penalty=presence_penalty,
        repeat_last_n=repeat_last_n,
        logit_bias=logit_bias,
    )
    reply_options = ReplyOptions(
        sampling=sampling,
        draft_length=options.draft_length(draft_length),
        verification=verification,
        draft_temperature=draft_temperature,
        max_tokens=None if max_tokens == -1 else max_tokens,
        seed=None if seed == -1 else seed,
    )
    samples = samples if samples is not None else _JOINT_SAMPLES if joint else _SAMPLES
    _check(reply_options, samples, part, control=control, joint=joint, plot=plot, draft_model=draft_model)
    wanted = load_prompts(prompts)
    exact = exact or (joint and (gpu_layers == 0 or not has_gpu_backend()))
    target_load, draft_load = load_options(context, batch, threads, gpu_layers, draft_gpu_layers, exact=exact)
    pair = choose_pair(model, draft_model)
    if pair.draft is None:
        raise OptionError(f"there is no draft model for {pair.target_name} to audit.", "-md MODEL names one.")

    findings = Findings()
    with Interrupts() as interrupted:
        with console.waiting("Loading"):
            engine = Engine.load(pair.target, pair.draft, target_load, draft_load, interrupted=interrupted)
        with engine:
            if joint:
                with console.counting("Replies") as progress:
                    findings.joint = joint_audit(
                        engine, wanted[0], reply_options, samples,
                        control=control, progress=progress, interrupted=interrupted,
                    )  # fmt: skip
            elif part != Part.IDENTITY and sampling.temperature > 0:
                with console.counting("Tokens tested") as progress:
                    tokens = sample_tokens(
                        engine, wanted, reply_options, samples,
                        control=control, progress=progress, interrupted=interrupted,
                    )  # fmt: skip
                findings.distribution = judge(tokens) if len(tokens) else None
            if part != Part.DISTRIBUTION and not joint and not control and not interrupted():
                with console.counting("Prompts compared") as progress:
                    findings.identity = identity_audit(
                        engine, _one_of_each_kind(wanted), reply_options, progress=progress, interrupted=interrupted
                    )
            if as_json:
                console.print_json(audit_json(findings, pair, reply_options, engine, control=control))
            else:
                _print_findings(findings, pair, reply_options, engine, control=control)
        if plot is not None and findings.distribution is not None:
            plots.save_audit(findings.distribution, plot)
        if interrupted():
            raise Interrupted("interrupted.", "What is printed above is from the tokens that were tested so far.")
    if findings.found:
        raise typer.Exit(CHECK_FAILED)
    if control:
        raise SpecliError(
            "the control was not found, so this audit is too weak to tell anything.",
            "More --samples make it stronger; a draft that nearly always agrees with the target hides any rule.",
        )


def _check(
    reply: ReplyOptions,
    samples: int,
    part: Part,
    *,
    control: bool,
    joint: bool,
    plot: Path | None,
    draft_model: str | None,
) -> None:
    """Refuse what makes no sense before anything is loaded."""
    if samples < 1:
        raise OptionError(f"--samples is {samples}, but must be 1 or more.", f"{_SAMPLES} is the default.")
    if reply.draft_length == 0 or draft_model == "none":
        raise OptionError(
            "an audit without drafts has nothing to find out.", "Leave out --draft-length 0 and -md none."
        )
    if control and reply.verification in ("match", "coupled"):
        raise OptionError(
            f"--control has a rule of its own, but --verification is {reply.verification!r}.",
            "Leave out --verification.",
        )
    if control and part == Part.IDENTITY:
        raise OptionError("--control is about probabilities, but --part is 'identity'.", "Leave out --part.")
    if reply.sampling.temperature == 0 and (joint or control or plot or part == Part.DISTRIBUTION):
        raise OptionError(
            "--temp is 0, so nothing is left to chance and there is no distribution to test.",
            "Take a higher temperature, or leave out --part, --joint, --control and --plot.",
        )
    if plot is not None:
        if joint or part == Part.IDENTITY:
            raise OptionError("--plot draws the test of probabilities, which is left out here.", "Leave out --plot.")
        plots.check(plot)


def _one_of_each_kind(prompts: list[Prompt]) -> list[Prompt]:
    return list({prompt.kind: prompt for prompt in reversed(prompts)}.values())[::-1]


def _print_findings(findings: Findings, pair: Pair, reply: ReplyOptions, engine: Engine, *, control: bool) -> None:
    how = reply_text(reply, exact=engine.target.options.exact)
    console.print_line(f"target {pair.target_name}, draft {pair.draft_name or 'none'}: {how}")
    if control:
        console.print_line("Negative control: the rule is wrong, so this audit must find a bias.")
    if findings.distribution is not None:
        _print_distribution(findings.distribution)
    if findings.joint is not None:
        _print_lines(joint_lines(findings.joint))
    if findings.identity is not None:
        _print_lines(identity_lines(findings.identity, engine.target.vocabulary.text))


def _print_lines(lines: list[str]) -> None:
    for line in ["", *lines]:
        console.print_line(line)


def _print_distribution(report: DistributionReport) -> None:
    rate = f", {100 * report.accepted / report.tested:.0f} % of the draft tokens accepted" if report.tested else ""
    _print_lines([f"Probabilities: {report.tokens} tokens of {report.replies} replies{rate}"])
    rows = [
        (
            group.name,
            str(group.tokens),
            f"{group.mean.statistic:+.2f}",
            f"{group.mean.p_value:.2g}",
            f"{group.bins.statistic:.1f}",
            f"{group.bins.p_value:.2g}",
        )
        for group in report.groups
    ]
    columns = [("tokens", False), ("n", True), ("mean, z", True), ("p", True)]
    console.print_table([*columns, (f"chi-square ({BINS - 1})", True), ("p", True)], rows)
    for line in distribution_lines(report):
        console.print_line(line)


def audit_json(findings: Findings, pair: Pair, reply: ReplyOptions, engine: Engine, *, control: bool) -> dict[str, Any]:
    """Return what `--json` prints; docs/exactness.md describes it."""
    distribution, joint, identity = findings.distribution, findings.joint, findings.identity
    return {
        "kind": "audit",
        "version": JSON_VERSION,
        "specli": __version__,
        "model": pair.target_name,
        "draft_model": pair.draft_name,
        "settings": asdict(replace(reply, sampling=replace(reply.sampling, logit_bias=())))
        | {"logit_bias": [list(bias) for bias in reply.sampling.logit_bias], "exact": engine.target.options.exact},
        "control": control,
        "significance": SIGNIFICANCE,
        "found": findings.found,
        "distribution": asdict(distribution)
        | {"found": distribution.found, "sentence": " ".join(distribution_lines(distribution))}
        if distribution is not None
        else None,
        "joint": asdict(joint) | {"found": joint.found, "sentence": joint_lines(joint)[-1]}
        if joint is not None
        else None,
        "identity": asdict(identity)
        | {
            "differences": len(identity.differences),
            "unexplained": len(identity.unexplained),
            "sentence": identity_lines(identity, engine.target.vocabulary.text)[-1],
        }
        if identity is not None
        else None,
    }
