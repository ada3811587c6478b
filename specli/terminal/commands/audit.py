"""`specli audit`: find out whether drafts change the output."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from specli.engine.options import ReplyOptions
from specli.errors import CHECK_FAILED, Interrupted, OptionError, SpecliError
from specli.llama.options import LoadOptions
from specli.options import Option
from specli.terminal import console, options
from specli.terminal.command import command
from specli.terminal.commands.models import choose_pair_for
from specli.terminal.interrupts import Interrupts
from specli.terminal.options import ModelOptions, OutputOptions, seeded
from specli.terminal.ready import load_engine, warn_about_gpu

_SAMPLES, _JOINT_SAMPLES = 3500, 2000


class Test(StrEnum):
    """What an audit tests."""

    __test__ = False  # no test case, whatever pytest thinks of the name

    DISTRIBUTION = "distribution"
    IDENTITY = "identity"
    JOINT = "joint"
    ALL = "all"


@command(without={"stop", "ignore_eos"})
def audit(
    test: Annotated[
        list[Test] | None,
        Option(
            "distribution: the emitted tokens against the target's probabilities; identity: texts at temperature "
            "0 with and without drafts; joint: the first tokens of many replies to one prompt against their exact "
            "probabilities. May be repeated. Default: distribution and identity."
        ),
    ] = None,
    samples: Annotated[
        int | None,
        Option(f"Tokens to test, or joint replies. Default: {_SAMPLES}, or {_JOINT_SAMPLES}.", 1, hint="Leave it out."),
    ] = None,
    control: Annotated[
        bool, Option("Negative control: a wrong accept rule, which must fail with exit code 3.")
    ] = False,
    plot: options.Plot = None,
    prompts: options.Prompts = "builtin",
    models: ModelOptions = ModelOptions(),
    load: LoadOptions = LoadOptions(),
    reply: ReplyOptions = ReplyOptions(draft_length=4, max_tokens=64, seed=0),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Check that drafts do not change the output; exit 3 when they do.

    Every token of ordinary replies is compared with the target's own
    probabilities, computed again without any speculation. And at
    temperature 0, texts with and without drafts are compared token by
    token. About five minutes with the default pair on two cores.

    Examples:
        specli audit

        specli audit --temp 1 --top-k 0 --top-p 1 --min-p 0 --verification token

        specli audit --control
    """
    from specli.evaluation.distribution import judge, sample_tokens
    from specli.evaluation.identity import identity_audit
    from specli.evaluation.joint import joint_audit
    from specli.evaluation.prompts import load_prompts, one_of_each_kind
    from specli.llama.parameters import on_gpu
    from specli.terminal import plots
    from specli.terminal.commands.audit_report import Findings, audit_json, print_findings

    reply = seeded(reply)
    tests = _tests(test, reply, control=control)
    _check(reply, tests, control=control)
    if plot is not None:
        if Test.DISTRIBUTION not in tests:
            raise OptionError("--plot draws the test of distributions, which is left out here.", "Leave out --plot.")
        plots.check(plot)
    wanted = load_prompts(prompts)
    if Test.JOINT in tests and not on_gpu(load) and load.flash_attention != "off":
        load = replace(load, exact=True)  # one prompt 2,000 times would add up the same rounding
    warn_about_gpu(load)
    pair = choose_pair_for(models, reply)
    if pair.draft_unknown:
        message = f"there is no draft model for {pair.target_name} to audit."
        raise OptionError(message, "-md MODEL names one; '--drafter lookup' needs none.")

    findings = Findings()
    with Interrupts() as interrupted:
        with load_engine(pair, load, interrupted) as engine:
            if Test.DISTRIBUTION in tests:
                with console.counting("Tokens tested") as progress:
                    tokens = sample_tokens(
                        engine, wanted, reply, samples or _SAMPLES,
                        control=control, progress=progress, interrupted=interrupted,
                    )  # fmt: skip
                findings.distribution = judge(tokens) if len(tokens) else None
            if Test.JOINT in tests and not interrupted():
                with console.counting("Replies") as progress:
                    findings.joint = joint_audit(
                        engine, wanted[0], reply, samples or _JOINT_SAMPLES,
                        control=control, progress=progress, interrupted=interrupted,
                    )  # fmt: skip
            if Test.IDENTITY in tests and not interrupted():
                with console.counting("Prompts compared") as progress:
                    findings.identity = identity_audit(
                        engine, one_of_each_kind(wanted), reply, progress=progress, interrupted=interrupted
                    )
            if output.as_json:
                console.print_json(audit_json(findings, pair, reply, engine, control=control))
            else:
                print_findings(findings, pair, reply, engine, control=control)
        if plot is not None and findings.distribution is not None:
            plots.save_audit(findings.distribution, plot)
        if interrupted():
            raise Interrupted("interrupted.", "What is printed above is from the tokens that were tested so far.")
    if findings.found:
        raise typer.Exit(CHECK_FAILED)
    if control:
        hint = "More --samples make it stronger; a draft that nearly always agrees with the target hides any rule."
        raise SpecliError("the negative control did not fail, so this audit is too weak to tell anything.", hint)


def _tests(wanted: list[Test] | None, reply: ReplyOptions, *, control: bool) -> set[Test]:
    """Return which tests are run: what was asked for, or what makes sense with these options."""
    if wanted:
        return set(Test) - {Test.ALL} if Test.ALL in wanted else set(wanted)
    found = {Test.DISTRIBUTION, Test.IDENTITY}
    if control:
        found.remove(Test.IDENTITY)
    elif reply.sampling.temperature == 0:
        found.remove(Test.DISTRIBUTION)
    return found


def _check(reply: ReplyOptions, tests: set[Test], *, control: bool) -> None:
    """Refuse what makes no sense before anything is loaded."""
    if reply.draft_length == 0:
        raise OptionError("an audit without drafts has nothing to find out.", "Leave out --draft-length 0.")
    if control and reply.verification in ("match", "coupled"):
        message = f"--control has a rule of its own, but --verification is {reply.verification!r}."
        raise OptionError(message, "Leave out --verification.")
    if control and Test.IDENTITY in tests:
        message = "--control is about probabilities, but --test has 'identity'."
        raise OptionError(message, "Choose distribution or joint.")
    if reply.sampling.temperature == 0 and tests != {Test.IDENTITY}:
        message = "--temp is 0, so nothing is left to chance and there is no distribution to test."
        raise OptionError(message, "Choose a higher temperature, or '--test identity'.")
