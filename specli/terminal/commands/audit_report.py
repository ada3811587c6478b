"""How the findings of an audit are shown: tables, sentences, and the document of `--json`."""

from __future__ import annotations

from collections.abc import Callable
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
        return any(report is not None and report.found for report in (self.distribution, self.joint, self.identity))


def print_findings(findings: Findings, pair: Pair, reply: ReplyOptions, engine: Engine, *, control: bool) -> None:
    """Print what an audit has found out."""
    how = reply_text(reply, engine.target.options)
    console.print_line(f"target {pair.target_name}, draft {pair.draft_name or 'none'}: {how}")
    if control:
        console.print_line("Negative control: the rule is wrong, so this audit must find a bias.")
    if findings.distribution is not None:
        _print_distribution(findings.distribution)
    if findings.joint is not None:
        console.print_lines(["", *joint_lines(findings.joint)])
    if findings.identity is not None:
        console.print_lines(["", *identity_lines(findings.identity, engine.target.vocabulary.text)])


def _print_distribution(report: DistributionReport) -> None:
    rate = f", {100 * report.accepted / report.tested:.0f} % of the draft tokens accepted" if report.tested else ""
    console.print_lines(["", f"Probabilities: {report.tokens} tokens of {report.replies} replies{rate}"])
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
    console.print_table(["tokens", "n", "mean, z", "p", f"chi-square ({BINS - 1})", "p"], rows)
    console.print_lines(distribution_lines(report))


def audit_json(findings: Findings, pair: Pair, reply: ReplyOptions, engine: Engine, *, control: bool) -> dict[str, Any]:
    """Return what `--json` prints; docs/exactness.md describes it."""
    text, load = engine.target.vocabulary.text, engine.target.options
    return {
        "kind": "audit",
        "version": JSON_VERSION,
        "specli": __version__,
        "model": pair.target_name,
        "draft_model": pair.draft_name,
        "settings": asdict(replace(reply, sampling=replace(reply.sampling, logit_bias=())))
        | {
            "logit_bias": [list(bias) for bias in reply.sampling.logit_bias],
            "exact": load.exact,
            "loading": load.in_words,
        },
        "control": control,
        "significance": SIGNIFICANCE,
        "found": findings.found,
        "distribution": _part(findings.distribution, lambda report: " ".join(distribution_lines(report))),
        "joint": _part(findings.joint, lambda report: joint_lines(report)[-1]),
        "identity": _part(
            findings.identity, lambda report: identity_lines(report, text)[-1], "differences", "unexplained"
        ),
    }


def _part(report: Any, sentence: Callable[[Any], str], *properties: str) -> dict[str, Any] | None:
    if report is None:
        return None
    more = {name: getattr(report, name) for name in ("found", *properties)}
    return asdict(report) | more | {"sentence": sentence(report)}
