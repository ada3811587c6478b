"""Files that specli 0.1 wrote are read by this one: sessions, settings, comparisons and calibrations.

They lie in first-edition/ as they were written, by a pair of tiny models of the seeds 1 and 2.
"""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from tiny import write_tiny_model

from specli.engine.conversation import Conversation
from specli.evaluation.journal import read_journal
from specli.llama.model import load_vocabulary
from specli.llama.options import LoadOptions
from specli.llama.text import Message, chat_prompt
from specli.models.files import find_file
from specli.models.pair import choose_pair
from specli.models.registry import HuggingFaceSource, WheelSource, load_registry
from specli.models.storage import Silent
from specli.state import experience, sessions
from specli.terminal.app import run

SESSION = "2026-12-01-023200"


@pytest.fixture
def first(tmp_path, monkeypatch):
    """A copy of the folder, with the models that its models.toml names, as the home of this specli."""
    folder = tmp_path / "first-edition"
    shutil.copytree(Path(__file__).parent / "first-edition", folder)
    write_tiny_model(folder / "tiny-target.gguf", seed=1)
    write_tiny_model(folder / "tiny-draft.gguf", seed=2)
    monkeypatch.setenv("SPECLI_HOME", str(folder / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("specli.llama.parameters.default_threads", lambda: 2)  # as on the machine that wrote them
    return folder


def raw_events(folder):
    lines = (folder / "home" / "state" / "sessions" / f"{SESSION}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_session(first):
    events, damaged = sessions.read_events(sessions.session_path(None))
    assert (events, damaged) == (raw_events(first), 0)
    (listed,) = sessions.list_sessions()
    assert (listed.name, listed.model, listed.first_words) == (SESSION, "big", "hello there")
    vocabulary = load_vocabulary(first / "tiny-target.gguf")

    def prompt(messages, known):
        return chat_prompt(vocabulary, messages, known=known)

    conversation = Conversation()
    for event in events:
        conversation.apply(event, prompt)
        if event["type"] == "assistant":
            assert conversation.tokens[-len(event["tokens"]) :] == event["tokens"]
            text = b"".join(map(vocabulary.piece, event["tokens"])).decode()
            assert conversation.last_reply == event["content"] == text
    assert conversation.messages == [
        Message("system", "be brief."),
        Message("user", "hello there"),
        Message("assistant", events[2]["content"]),
        Message("user", "what is a river"),
        Message("assistant", events[10]["content"]),
        Message("user", "and a lake"),
        Message("assistant", events[12]["content"]),
    ]
    following = prompt([*conversation.messages, Message("user", "thanks")], conversation.tokens)
    assert following[: len(conversation.tokens)] == conversation.tokens


def test_a_session_goes_on(first, capfd, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\n/regen\n"))
    assert run(["chat", "--resume", "--seed", "3", "-n", "5", "--draft-length", "3"]) == 0
    shown = capfd.readouterr().err
    assert f"Resumed {SESSION}: 6 messages" in shown
    assert "damaged" not in shown
    before = raw_events(Path(__file__).parent / "first-edition")
    now = raw_events(first)
    assert now[: len(before)] == before
    assert [event["type"] for event in now[len(before) :]] == ["user", "assistant"] * 2 + ["retract", "assistant"]


def test_models(first):
    registry = load_registry()
    big, small, mirrored = (registry[name] for name in ("big", "small", "mirrored"))
    assert registry.default_target == "big"
    assert (big.description, big.license, big.draft) == ("the model I use most", "MIT", "small")
    assert find_file(big).samefile(first / "tiny-target.gguf")
    assert find_file(small).samefile(first / "tiny-draft.gguf")
    assert mirrored.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert [type(source) for source in mirrored.sources] == [HuggingFaceSource, WheelSource]
    pair = choose_pair(None, None, Silent())
    assert (pair.target_name, pair.draft_name, pair.draft_unknown) == ("big", "small", False)


def test_a_comparison(first):
    head, *lines = [json.loads(line) for line in (first / "comparison.jsonl").read_text().splitlines()]
    header, measured = read_journal(first / "comparison.jsonl")
    found = json.loads(json.dumps(asdict(header.settings)))
    assert found.pop("drafter") == "auto"  # these came later
    for load in ("target_load", "draft_load"):
        later = {key: found[load].pop(key) for key in found[load].keys() - head["settings"][load].keys()}
        assert later == {
            key: value for key, value in json.loads(json.dumps(asdict(LoadOptions()))).items() if key in later
        }
    assert found == head["settings"]
    assert [facts.quantization for facts in header.models] == ["F32", "F32"]
    wanted = [{"configuration" if key == "arm" else key: value for key, value in line.items()} for line in lines]
    assert json.loads(json.dumps([asdict(one) for one in measured])) == wanted
    assert len(lines) == 16


def test_a_comparison_goes_on(first, capfd):
    path = first / "comparison.jsonl"
    before = path.read_bytes()
    assert run(["compare", "-o", str(path), "--resume", "--json"]) == 0
    now = json.loads(capfd.readouterr().out)
    assert path.read_bytes().startswith(before)
    settings = read_journal(path)[0].settings
    assert settings.plan.total >= len(now["measurements"]) >= 16


def test_a_calibration(first):
    content = json.loads((first / "home" / "costs.json").read_text())
    ((key, kept),) = content.items()
    costs = experience.load_costs(key)
    assert (costs.context, costs.draft) == (kept["context"], kept["draft"])
    assert {str(rows): seconds for rows, seconds in costs.target.items()} == kept["target"]
    for use in ("auto greedy", "auto high", "model low"):  # one experience for all then, a start for each now
        learned = experience.load_experience(key, use)
        assert list(learned.acceptance) == kept["experience"]["acceptance"]
        assert list(learned.matches) == kept["experience"]["matches"]
    experience.save_costs("other", costs)
    experience.save_experience("other", "auto greedy", learned)
    assert experience.load_costs(key) == costs
    assert experience.load_experience(key, "auto high") == learned
