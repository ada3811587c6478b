"""`specli chat` with lines from a pipe, on a tiny pair: replies, commands, sessions, caches, a full context."""

from __future__ import annotations

import json
import math
import re

import pytest

from specli.errors import OptionError
from specli.terminal.chat.commands import with_option

QUICK = ("-t", "1", "-n", "12", "--temp", "0", "-c", "512")


@pytest.fixture
def chat(specli):
    def call(*lines: str, arguments=()):
        return specli("chat", *QUICK, *arguments, stdin="".join(line + "\n" for line in lines).encode())

    return call


def events(home):
    (path,) = (home / "state" / "sessions").glob("*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def replies(home) -> list[str]:
    return [event["content"] for event in events(home) if event["type"] == "assistant"]


def cached(err: str) -> list[tuple[int, int]]:
    """Prompt tokens and how many of them were in the cache, for each reply."""
    found = re.findall(r"prompt (\d+) tokens[^·]*", err)
    hits = [re.search(r"\((\d+) cached\)", line) for line in err.splitlines() if line.startswith("prompt")]
    return [(int(total), int(hit[1]) if hit else 0) for total, hit in zip(found, hits, strict=True)]


def test_only_replies_are_printed_on_stdout(chat, tiny_home):
    result = chat("abc", "hello")
    assert result.code == 0
    assert result.out == "".join(reply if reply.endswith("\n") else reply + "\n" for reply in replies(tiny_home))
    assert result.err.count("tokens per target pass") <= 2
    assert "\x1b" not in result.out + result.err
    assert chat("abc", arguments=["-q"]).err == ""


def test_a_reply_that_was_cut_says_so(chat, tiny_home):
    result = chat("abc", "hello", "/set max-tokens 2", "xyz")
    cut = [event for event in events(tiny_home) if event.get("finish_reason") == "length"]
    assert cut
    assert result.err.count("/set max-tokens N allows more.") == len(cut)


def test_a_turn_reads_only_what_is_new(chat, tiny_home):
    counts = cached(chat("abc", "hello", "xyz", "abc", "hello").err)
    assert counts[0][1] == 0
    answers = [event for event in events(tiny_home) if event["type"] == "assistant"]
    assert len(answers) == 5
    for before, answer, now in zip(counts, answers, counts[1:], strict=False):
        # Everything of the turn before is in the cache, but for a last token that was never fed.
        cut = answer["finish_reason"] == "length"
        assert now[1] == before[0] + len(answer["tokens"]) - cut


def test_after_taking_back_only_what_changed_is_read(chat, tiny_home):
    counts = cached(chat("abc", "hello", "/undo", "hello", "/regen", "/edit-last xyz").err)
    (first, _), *later = counts
    assert len(later) == 4
    answer = next(event for event in events(tiny_home) if event["type"] == "assistant")
    assert all(hit >= first + len(answer["tokens"]) - 1 for _, hit in later)
    system = cached(chat("abc", "/system b", "hello").err)
    assert system[1][1] < system[0][0]


def test_triple_quotes_and_slashes(chat, tiny_home):
    chat('"""ab', "cd", '"""', "//x")
    said = [event["content"] for event in events(tiny_home) if event["type"] == "user"]
    assert said == ["ab\ncd", "/x"]


def test_commands(chat, tiny_home, tmp_path, monkeypatch):
    saved = tmp_path / "talk.md"
    note = tmp_path / "note.txt"
    note.write_text("abc\n")
    monkeypatch.setenv("EDITOR", "sh -c 'echo xyz > $0'")
    result = chat(
        "/help", "/system hello", "abc", "/params", "/stats off", "hello", "/draft off", "/draft 3", "/draft",
        f"/read {note}", "xyz", f"/save {saved}", f"/save {saved}", "/save", "/sessions", "/edit", "/edit-last",
        "/nope", "/undoo", "/set temp 9", "/set temp x", "/set tmp 1", "/set temp 0.5", "/read", "/read /lost",
        "/load nobody", "/stats maybe", "/copy", "/clear", "/regen", "/undo", "/edit-last", "/exit", "never read",
    )  # fmt: skip
    assert result.code == 1  # something was refused
    assert "/edit-last [TEXT]" in result.out
    assert "temp 0.0" in result.out
    assert "temp 0.5" in result.out
    assert "drafts: off" in result.err
    assert "drafts: 3 tokens" in result.err
    assert saved.read_text().startswith("# system\n\nhello\n\n# user\n\nabc\n")
    for message in (
        "exists already",
        "there is no command /nope",
        "Did you mean /undo?",
        "--temp is 9.0, but must be between 0 and 5",
        "temp is 'x', but must be a number",
        "Did you mean temp?",
        "/read needs a file",
        "cannot read /lost",
        "no session 'nobody'",
        "/stats is 'maybe'",
        "no reply to make again",
        "nothing to undo",
        "no message to edit",
    ):
        assert message in result.err
    said = [event["content"] for event in events(tiny_home) if event["type"] == "user"]
    assert said == ["abc", "hello", "abc\n\nxyz", "xyz", "xyz"]


@pytest.mark.parametrize(("name", "value"), [("temp", "9"), ("top-p", "2"), ("draft-length", "-1"), ("drafter", "x"),
                                             ("verification", "x"), ("max-tokens", "0"), ("seed", "-3"),
                                             ("logit-bias", "3")])  # fmt: skip
def test_options_are_checked_like_flags(name, value):
    from specli.engine.options import ReplyOptions
    from specli.terminal.options import spelled

    with pytest.raises(OptionError) as failed:
        with_option(ReplyOptions(), name, value)
    assert spelled(failed.value.message).startswith(f"--{name} is ")


def test_options_are_set():
    from specli.engine.options import ReplyOptions

    options = ReplyOptions()
    for name, value in (
        ("temp", "0.3"),
        ("top-k", "5"),
        ("seed", "7"),
        ("draft-length", "auto"),
        ("drafter", "lookup"),
    ):
        options = with_option(options, name, value)
    assert (options.sampling.temperature, options.sampling.top_k) == (0.3, 5)
    assert (options.seed, options.draft_length, options.drafter) == (7, None, "lookup")
    assert with_option(options, "seed", "-1").seed is None
    options = with_option(options, "logit-bias", "3=-1.5 4=false")
    assert options.sampling.logit_bias == ((3, -1.5), (4, -math.inf))
    assert with_option(options, "logit-bias", "none").sampling.logit_bias == ()


def test_options_are_shown_as_they_are_typed(chat):
    result = chat("/set logit-bias 3=-1.5 4=false", "/params")
    assert "logit-bias 3=-1.5 4=false" in result.out
    assert "draft-length auto" in result.out


def test_a_message_without_its_closing_quotes_is_sent_with_a_warning(chat, tiny_home):
    result = chat('"""abc', "hello")
    assert "Warning: the input ended before the closing" in result.err
    assert [event["content"] for event in events(tiny_home) if event["type"] == "user"] == ["abc\nhello"]


def test_another_draft_model_keeps_the_conversation(chat, tiny_home, tiny_file):
    result = chat("abc", f"/draft {tiny_file}", "hello", "/draft none", "xyz", "/draft nobody")
    assert result.code == 1
    assert "no model" in result.err.lower() or "nobody" in result.err
    once = replies(tiny_home)
    (tiny_home / "state" / "sessions").rename(tiny_home / "state" / "before")
    chat("abc", "hello", "xyz")
    assert replies(tiny_home) == once


def test_the_same_seed_and_script_give_the_same_transcript(chat, tiny_home):
    arguments = ["--seed", "5", "--temp", "1", "--top-k", "0"]
    script = ("abc", "hello", "/regen", "/undo", "xyz")
    outs = [chat(*script, arguments=arguments).out for _ in range(2)]
    assert outs[0] == outs[1]
    assert chat(*script, arguments=["--seed", "6", *arguments[2:]]).out != outs[0]
    first, second = [event["content"] for event in events_of_latest(tiny_home) if event["type"] == "assistant"][1:3]
    assert first != second  # /regen draws again


def events_of_latest(home):
    paths = sorted((home / "state" / "sessions").glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    return [json.loads(line) for line in paths[-1].read_text().splitlines()]


def test_exact_transcripts_do_not_depend_on_the_draft(chat):
    script = ("abc", "hello", "/undo", "xyz", "abc")
    exact = [chat(*script, arguments=["--exact", *more]).out
             for more in ([], ["--no-draft"], ["--draft-length", "3"], ["--drafter", "lookup"])]  # fmt: skip
    assert len(set(exact)) == 1


def test_a_resumed_conversation_goes_on_as_if_it_had_not_ended(chat, tiny_home):
    whole = chat("abc", "hello", "/regen", "xyz", "abc", arguments=["--exact"]).out
    (tiny_home / "state" / "sessions").rename(tiny_home / "state" / "before")
    first = chat("abc", "hello", "/regen", arguments=["--exact"]).out
    rest = chat("xyz", "abc", arguments=["--exact", "--resume"])
    assert first + rest.out == whole
    assert "Resumed" in rest.err
    assert len(list((tiny_home / "state" / "sessions").glob("*.jsonl"))) == 1
    name = next((tiny_home / "state" / "sessions").glob("*.jsonl")).stem
    assert chat("/sessions", arguments=["--session", name]).code == 0
    again = chat(f"/load {name}", "abc", arguments=["--exact"])
    assert "Resumed" in again.err


def test_a_damaged_session_is_resumed_with_a_warning(chat, tiny_home):
    chat("abc", "hello")
    (path,) = (tiny_home / "state" / "sessions").glob("*.jsonl")
    path.write_bytes(path.read_bytes()[:-30])
    result = chat("/regen", arguments=["--resume"])
    assert "1 damaged lines" in result.err
    assert "the last one has no reply" in result.err
    assert result.out.count("\n") >= 1


def test_a_full_context_is_never_silent(chat, tiny_home):
    long = "abc " * 50
    stopped = chat(long, long, long, arguments=["-c", "256"])
    assert stopped.code == 1
    assert "tokens, and 12 for a reply do not fit in a context of 256" in stopped.err
    assert "--on-full drop" in stopped.err
    dropped = chat(long, "hello", long, "abc", arguments=["-c", "256", "--on-full", "drop"])
    assert dropped.code == 0
    assert "Dropped the oldest message and its reply: abc abc" in dropped.err
    assert any(event["type"] == "drop" for event in events_of_latest(tiny_home))
    assert "of 256 tokens of the context are used" in dropped.err + stopped.err
    alone = chat("abc " * 90, arguments=["-c", "256"])
    assert alone.code == 1
    assert "the message has" in alone.err
    assert not any(event["type"] == "user" and len(event["content"]) > 300 for event in events_of_latest(tiny_home))


def test_nothing_is_kept_when_nothing_is_to_be_kept(chat, tiny_home):
    assert chat("abc", arguments=["--no-session", "--no-history"]).code == 0
    assert not (tiny_home / "state").exists()
    assert chat("abc", arguments=["--no-session", "--resume"]).code == 2
    assert chat(arguments=["--resume"]).code == 1


def test_five_hundred_turns_need_no_more_memory(chat, tiny_home, monkeypatch):
    import specli.terminal.chat.state as module

    sizes = []
    real = module.Chat.answer

    def answer(self):
        real(self)
        with open("/proc/self/statm") as file:
            sizes.append(int(file.read().split()[1]) * 4096)

    monkeypatch.setattr(module.Chat, "answer", answer)
    result = chat(*["abc"] * 500, arguments=["-q", "--on-full", "drop", "-n", "4"])
    assert result.code == 0
    assert len(sizes) == 500
    assert sizes[-1] - sizes[19] < 50e6
