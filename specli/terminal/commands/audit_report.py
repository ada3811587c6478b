"""How the findings of an audit are shown: tables, sentences, and the document of `--json`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from specli import __version__
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.evaluation.distribution import BINS, SIGNIFICANCE, DistributionReport, distribution_lines
from specli.evaluation.identity import IdentityReport, identity_lines
from specli.evaluation.joint import JointReport, joint_lines
from specli.evaluation.settings import reply_text
from specli.models.pair import Pair
from specli.terminal import console

JSON_VERSION = 1


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


def print_findings(findings: Findings, pair: Pair, reply: ReplyOptions, engine: Engine, *, control: bool) -> None:
    """Print what an audit has found out."""
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
    names = ("n", "mean, z", "p", f"chi-square ({BINS - 1})", "p")
    console.print_table([("tokens", False), *((name, True) for name in names)], rows)
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
