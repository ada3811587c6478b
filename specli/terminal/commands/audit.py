"""`specli audit`: find out whether drafts change the output."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from specli import __version__
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.errors import CHECK_FAILED, Interrupted, OptionError, SpecliError
from specli.evaluation.distribution import (
    BINS,
    SIGNIFICANCE,
    DistributionReport,
    GroupResult,
    JointReport,
    joint_audit,
    judge,
    sample_tokens,
)
from specli.evaluation.identity import IdentityReport, PromptIdentity, identity_audit
from specli.evaluation.prompts import Prompt, load_prompts
from specli.llama.model import has_gpu_backend
from specli.llama.options import LoadOptions
from specli.llama.vocabulary import Vocabulary
from specli.models.pair import Pair
from specli.terminal import console, options, plots
from specli.terminal.command import command
from specli.terminal.commands.models import choose_pair
from specli.terminal.interrupts import Interrupts
from specli.terminal.options import ModelOptions, OutputOptions, seeded
from specli.terminal.ready import load_engine, warn_about_gpu

JSON_VERSION = 1
_SAMPLES, _JOINT_SAMPLES = 3500, 2000


class Test(StrEnum):
    """What an audit tests."""

    ALL = "all"  # distribution and identity
    DISTRIBUTION = "distribution"
    IDENTITY = "identity"
    JOINT = "joint"


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


@command(without={"stop", "ignore_eos"})
def audit(
    test: Annotated[
        Test,
        typer.Option(
            "--test",
            help="distribution: emitted tokens against the target's probabilities; identity: texts at temperature 0 "
            "with and without drafts; joint: the first tokens of many replies to one prompt against their exact "
            "probabilities; all: the first two.",
        ),
    ] = Test.ALL,
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples",
            help=f"Tokens to test; with --test joint, replies. Default: {_SAMPLES}, for joint {_JOINT_SAMPLES}.",
            metavar="N",
        ),
    ] = None,
    control: Annotated[
        bool,
        typer.Option("--control", help="Negative control: a wrong accept rule, which must fail with exit code 3."),
    ] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the tested values into a .png or .svg file.", metavar="FILE")
    ] = None,
    prompts: options.Prompts = "builtin",
    models: ModelOptions = ModelOptions(),
    load: LoadOptions = LoadOptions(),
    reply: ReplyOptions = ReplyOptions(draft_length=4, max_tokens=64, seed=0),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Check that drafts do not change the output; exit 3 when they do.

    Two tests. Every token of ordinary replies is compared with the
    target's own probabilities, computed again without any speculation.
    And at temperature 0, texts with and without drafts are compared
    token by token. About five minutes with the default pair on two cores.

    Examples:
        specli audit

        specli audit --temp 1 --top-k 0 --top-p 1 --min-p 0 --verification token

        specli audit --control
    """
    reply = seeded(reply)
    samples = samples if samples is not None else _JOINT_SAMPLES if test == Test.JOINT else _SAMPLES
    _check(reply, samples, test, control=control, plot=plot)
    wanted = load_prompts(prompts)
    if test == Test.JOINT and (load.gpu_layers == 0 or not has_gpu_backend()):
        load = replace(load, exact=True)  # one prompt 2,000 times would add up the same rounding
    warn_about_gpu(load)
    pair = choose_pair(models.model, models.draft_for(reply))
    if pair.draft is None and reply.drafter != "lookup":
        raise OptionError(
            f"there is no draft model for {pair.target_name} to audit.",
            "-md MODEL names one; '--drafter lookup' goes without.",
        )

    findings = Findings()
    with Interrupts() as interrupted:
        with load_engine(pair, load, interrupted) as engine:
            if test == Test.JOINT:
                with console.counting("Replies") as progress:
                    findings.joint = joint_audit(
                        engine, wanted[0], reply, samples,
                        control=control, progress=progress, interrupted=interrupted,
                    )  # fmt: skip
            elif test != Test.IDENTITY and reply.sampling.temperature > 0:
                with console.counting("Tokens tested") as progress:
                    tokens = sample_tokens(
                        engine, wanted, reply, samples,
                        control=control, progress=progress, interrupted=interrupted,
                    )  # fmt: skip
                findings.distribution = judge(tokens) if len(tokens) else None
            if test in (Test.ALL, Test.IDENTITY) and not control and not interrupted():
                with console.counting("Prompts compared") as progress:
                    findings.identity = identity_audit(
                        engine, _one_of_each_kind(wanted), reply, progress=progress, interrupted=interrupted
                    )
            if output.as_json:
                console.print_json(audit_json(findings, pair, reply, engine, control=control))
            else:
                _print_findings(findings, pair, reply, engine, control=control)
        if plot is not None and findings.distribution is not None:
            plots.save_audit(findings.distribution, plot)
        if interrupted():
            raise Interrupted("interrupted.", "What is printed above is from the tokens that were tested so far.")
    if findings.found:
        raise typer.Exit(CHECK_FAILED)
    if control:
        raise SpecliError(
            "the negative control did not fail, so this audit is too weak to tell anything.",
            "More --samples make it stronger; a draft that nearly always agrees with the target hides any rule.",
        )


def _check(reply: ReplyOptions, samples: int, test: Test, *, control: bool, plot: Path | None) -> None:
    """Refuse what makes no sense before anything is loaded."""
    if samples < 1:
        raise OptionError(f"--samples is {samples}, but must be 1 or more.", f"{_SAMPLES} is the default.")
    if reply.draft_length == 0:
        raise OptionError("an audit without drafts has nothing to find out.", "Leave out --draft-length 0.")
    if control and reply.verification in ("match", "coupled"):
        raise OptionError(
            f"--control has a rule of its own, but --verification is {reply.verification!r}.",
            "Leave out --verification.",
        )
    if control and test == Test.IDENTITY:
        raise OptionError("--control is about probabilities, but --test is 'identity'.", "Leave out --test.")
    if reply.sampling.temperature == 0 and (control or plot or test in (Test.DISTRIBUTION, Test.JOINT)):
        raise OptionError(
            "--temp is 0, so nothing is left to chance and there is no distribution to test.",
            "Choose a higher temperature, or leave out --test, --control and --plot.",
        )
    if plot is not None:
        if test in (Test.JOINT, Test.IDENTITY):
            raise OptionError(f"--plot draws the test of distributions, but --test is '{test}'.", "Leave out --plot.")
        plots.check(plot)


def _one_of_each_kind(prompts: list[Prompt]) -> list[Prompt]:
    return list({prompt.kind: prompt for prompt in reversed(prompts)}.values())[::-1]


def _print_findings(findings: Findings, pair: Pair, reply: ReplyOptions, engine: Engine, *, control: bool) -> None:
    console.print_line(f"target {pair.target_name}, draft {pair.draft_name}: {settings_text(reply, engine)}")
    if control:
        console.print_line("Control: the rule is wrong on purpose, so a bias must be found.")
    if findings.distribution is not None:
        _print_distribution(findings.distribution)
    if findings.joint is not None:
        for line in joint_lines(findings.joint):
            console.print_line(line)
    if findings.identity is not None:
        for line in identity_lines(findings.identity, engine.target.vocabulary):
            console.print_line(line)


def settings_text(reply: ReplyOptions, engine: Engine) -> str:
    """Say in one line how the replies were made."""
    sampling = reply.sampling
    parts = [
        f"{reply.verification} verification",
        f"draft length {'auto' if reply.draft_length is None else reply.draft_length}",
        f"temperature {sampling.temperature:g}",
        f"top-k {sampling.top_k}",
        f"top-p {sampling.top_p:g}",
        f"min-p {sampling.min_p:g}",
    ]
    if reply.draft_temperature is not None:
        parts.append(f"draft temperature {reply.draft_temperature:g}")
    if engine.target.options.exact:
        parts.append("exact mode")
    return ", ".join(parts)


def _print_distribution(report: DistributionReport) -> None:
    console.print_line("")
    rate = f", {100 * report.accepted / report.tested:.0f} % of the draft tokens accepted" if report.tested else ""
    console.print_line(f"Probabilities: {report.tokens} tokens of {report.replies} replies{rate}")
    rows = [
        (
            _group_name(group),
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


def _group_name(group: GroupResult) -> str:
    return "all" if group.place is None else f"number {group.place + 1} of a round"


def distribution_lines(report: DistributionReport) -> list[str]:
    """Say what the test of probabilities found."""
    lines = []
    if report.impossible:
        lines.append(f"Fault: {report.impossible} tokens that the target's filters exclude.")
    if report.borderline:
        lines.append(f"{report.borderline} tokens at the edge of a filter, which rounding decides about, are left out.")
    everyday = f"{100 * report.detectable:.1f} of 100 tokens"
    if report.p_value < SIGNIFICANCE:
        lines.append(
            f"Bias found: p = {report.p_value:.2g}. The tokens are not distributed as the target's own; "
            f"about {100 * report.estimate:.1f} of 100 would have been others."
        )
    else:
        lines.append(
            f"No bias found: p = {report.p_value:.2g}. A draft that changed {everyday} or more "
            f"(total variation {report.detectable:.3f}) would have been found with probability 0.9."
        )
    return lines


def joint_lines(report: JointReport) -> list[str]:
    """Say what the test of joint probabilities found."""
    lines = [
        "",
        f"Joint probabilities: the first {report.depth} tokens of {report.samples} replies to {report.prompt}, "
        f"{report.cells} cells: G = {report.test.statistic:.1f}, {report.test.degrees} degrees of freedom",
    ]
    if report.found:
        return [*lines, f"Bias found: p = {report.test.p_value:.2g}."]
    return [
        *lines,
        f"No bias found: p = {report.test.p_value:.2g}. A total variation of {report.detectable:.3f}, "
        "however it is spread over the cells, would have been found with probability 0.9.",
    ]


def identity_lines(report: IdentityReport, vocabulary: Vocabulary) -> list[str]:
    """Say which texts differ."""
    total = sum(prompt.tokens for prompt in report.prompts)
    lines = ["", f"Identical texts at temperature 0: {len(report.prompts)} prompts, {total} tokens"]
    for prompt in report.differences:
        lines.append("  " + _difference_text(prompt, vocabulary))
    unexplained = len(report.unexplained)
    if not report.differences:
        lines.append("No difference: with and without the draft, token for token the same.")
    elif report.exact:
        lines.append(f"Fault: {unexplained} texts differ, which must not happen in exact mode.")
    elif unexplained:
        lines.append(f"Fault: {unexplained} of {len(report.differences)} differences are more than rounding.")
    else:
        lines.append(
            f"{len(report.differences)} texts differ where two logits are nearly equal: rounding, which elsewhere "
            f"moved them by up to {report.noise:.3f}. '--exact' removes it on a CPU."
        )
    return lines


def _difference_text(prompt: PromptIdentity, vocabulary: Vocabulary) -> str:
    difference = prompt.difference
    assert difference is not None
    tokens = [
        "the end" if token is None else repr(vocabulary.text(token))
        for token in (difference.plain_token, difference.drafted_token)
    ]
    return (
        f"{prompt.prompt}: token {difference.place + 1} is {tokens[0]} without and {tokens[1]} with the draft; "
        f"the two best logits are {difference.plain_gap:.4f} and {difference.drafted_gap:.4f} apart"
    )


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
            "sentence": identity_lines(identity, engine.target.vocabulary)[-1],
        }
        if identity is not None
        else None,
    }
