"""Flags for loading: what is typed reaches the models, is said in reports, and is remembered with a session."""

from __future__ import annotations

import pytest
from tiny import write_tiny_adapter

from specli.terminal.options import read_value

ASK = ("complete", "abc", "-n", "12", "--temp", "0", "--no-draft")


@pytest.fixture
def lora(tmp_path, tiny_file):
    return write_tiny_adapter(tmp_path / "a=b.gguf", tiny_file, strength=2.0)


@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [
        ("lora", ["a.gguf"], (("a.gguf", 1.0),)),
        ("lora", ["a.gguf=0.5", "b=c.gguf"], (("a.gguf", 0.5), ("b=c.gguf", 1.0))),
        ("devices", ["CUDA0,CUDA1", "Metal"], ("CUDA0", "CUDA1", "Metal")),
        ("override_tensor", ["a=CPU,b{1,2}=GPU"], (("a", "CPU"), ("b{1,2}", "GPU"))),
        ("override_tensor", ["a=b=CPU"], (("a=b", "CPU"),)),
        ("override_tensor", None, ()),
    ],
)
def test_how_flags_are_read(name, typed, value):
    assert read_value(name, typed) == value


def test_an_adapter_changes_the_text_and_without_it_the_text_is_back(specli, lora):
    base = specli(*ASK).out
    assert specli(*ASK, "--lora", str(lora)).out != base
    assert specli(*ASK, "--lora", f"{lora}=0").out == base
    assert specli(*ASK).out == base
    drafted = ("complete", "abc", "-n", "12", "--temp", "0", "--draft-length", "3", "--lora", str(lora))
    assert specli(*drafted).out == specli(*ASK, "--lora", str(lora)).out


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (("-ctv", "q8_0", "-fa", "off"), 2, "--cache-type-v is 'q8_0', which needs flash attention"),
        (("-ctk", "q5_1"), 2, "--cache-type-k is 'q5_1', but must be one of"),
        (("--exact", "-fa", "off"), 2, "--exact needs flash attention"),
        (("-dev", "none,CUDA0"), 2, "'none' excludes all others"),
        (("--device", "CUDA77"), 2, "--devices names 'CUDA77'"),
        (("-ot", "ffn"), 2, "--override-tensor is 'ffn', but must be a pattern"),
        (("-ot", "nothing=CPU"), 2, "--override-tensor: 'nothing' matches no tensor"),
        (("--cpu-moe",), 2, "--cpu-moe: there is no expert tensor"),
        (("--lora", "none.gguf"), 1, "--lora cannot be read: there is no file none.gguf"),
        (("--lora", "none.gguf=nan"), 2, "--lora is nan for none.gguf"),
    ],
)
def test_what_cannot_hold_is_one_line(specli, flags, code, said):
    result = specli(*ASK, *flags)
    assert (result.code, result.out) == (code, "")
    assert said in result.err.replace("\n", " ")
    assert "Hint: " in result.err


def test_ways_to_load_that_change_no_text(specli):
    base = specli(*ASK).out
    for flags in (("--no-mmap",), ("--mlock",), ("-ot", r"ffn_.*=CPU"), ("-fa", "on"), ("--devices", "none")):
        assert specli(*ASK, *flags).out == base


def test_a_session_remembers_its_adapter(specli, lora):
    assert specli("chat", "-q", "-n", "4", "--lora", str(lora), stdin=b"abc\n").code == 0
    assert "was begun with" not in specli("chat", "--resume", "-n", "4", "--lora", str(lora), stdin=b"abc\n").err
    resumed = specli("chat", "--resume", "-n", "4", stdin=b"abc\n").err
    assert "The session was begun with tiny and LoRA a=b.gguf." in resumed.replace("\n", " ")


def test_reports_name_what_is_unusual(specli, lora, tmp_path, tiny_file):
    (tmp_path / "p").write_text("abc\n")
    found = str(tmp_path / "found.jsonl")
    ask = ("compare", "--temp", "0", "-n", "4", "-r", "1", "--draft-length", "2", "--prompts", str(tmp_path / "p"))
    result = specli(*ask, "-o", found, "--lora", f"{lora}=0.5")
    assert result.code == 0
    assert "LoRA a=b.gguf at 0.5" in result.out.replace("\n", " ")
    assert "LoRA a=b.gguf at 0.5" in specli(*ask, "-o", found, "--resume").out.replace("\n", " ")
    write_tiny_adapter(lora, tiny_file, seed=9)
    assert specli(*ask, "-o", found, "--resume").code == 1
