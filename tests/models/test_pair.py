"""Choosing a pair: names, files, and the draft model that belongs to a target."""

from __future__ import annotations

import pytest
from deliveries import CONTENT, PINNED, Told, sha

from specli.errors import ModelFileError, ModelNotFoundError
from specli.models.pair import Pair, choose_pair

REGISTRY = """
[defaults]
target = "big"
[models.big]
path = "big.gguf"
draft = "small"
[models.small]
path = "small.gguf"
[models.single]
path = "single.gguf"
"""


@pytest.fixture
def big(home):
    (home / "models.toml").write_text(REGISTRY)
    for name in ("big", "small", "single"):
        (home / f"{name}.gguf").touch()
    return home / "big.gguf"


@pytest.mark.parametrize(
    ("model", "draft_model", "names", "unknown"),
    [
        (None, None, ("big", "small"), False),
        ("big", "single", ("big", "single"), False),
        ("big", "none", ("big", None), False),
        ("single", None, ("single", None), True),
        ("single", "none", ("single", None), False),
        ("single", "small", ("single", "small"), False),
    ],
)
def test_names_and_files(big, model, draft_model, names, unknown):
    report = Told()
    target, draft = (name and big.with_name(f"{name}.gguf") for name in names)
    assert choose_pair(model, draft_model, report) == Pair(target, draft, *names, unknown)
    assert (report.said, report.steps) == ([], [])


def test_what_is_wrong(big):
    for pair in (("nobody", None), ("big", "nobody")):
        with pytest.raises(ModelNotFoundError, match="no model named 'nobody'"):
            choose_pair(*pair, Told())
    big.with_name("small.gguf").unlink()
    with pytest.raises(ModelFileError, match=r"small\.gguf"):
        choose_pair(None, None, Told())
    assert choose_pair(None, "none", Told()).target == big


def test_files_are_fetched_and_the_report_is_told(big, hub, home):
    (home / "models.toml").write_text(
        REGISTRY
        + f"""
[models.toy]
bytes = {len(CONTENT)}
sha256 = "{sha(CONTENT)}"
draft = "small"
[[models.toy.sources]]
kind = "huggingface"
repository = "{PINNED.repository}"
revision = "{PINNED.revision}"
file = "toy.gguf"
"""
    )
    report = Told()
    pair = choose_pair("toy", None, report)
    assert pair.target.read_bytes() == CONTENT
    assert pair.draft_name == "small"
    assert ("Fetching toy", len(CONTENT), len(CONTENT)) in report.steps
