"""How options become flags and flags become options, and how quickly a command line answers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from specli.decoding.options import SamplingOptions
from specli.engine.options import ReplyOptions
from specli.errors import OptionError
from specli.llama.options import LoadOptions
from specli.options import declared
from specli.terminal.app import COMMANDS, load_command
from specli.terminal.options import flag, settable, setting_text, spelled, with_setting


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_their_help_says(name):
    *_, listed = COMMANDS[name]
    assert load_command(name).help.splitlines()[0] == listed


def flags(name: str) -> set[str]:
    return {one for parameter in load_command(name).params for one in parameter.opts if one.startswith("-")}


@pytest.mark.parametrize("kind", [SamplingOptions, ReplyOptions, LoadOptions])
def test_every_option_is_a_flag_of_complete_and_chat(kind):
    assert {flag(field) for field in declared(kind)} <= flags("complete")
    assert {flag(field) for field in declared(kind)} <= flags("chat")


@pytest.mark.parametrize("name", ["complete", "chat", "compare", "audit", "tune"])
def test_flags_that_mean_the_same_everywhere(name):
    assert {"-m", "-md", "-n", "-c", "-t", "-ngl", "--seed", "--exact", "--temp", "--verification"} <= flags(name)
    assert ("--drafter" in flags(name)) == (name != "tune")


def test_a_message_names_flags_instead_of_fields():
    assert spelled("`context` or `max_tokens`, `not a field`") == "--context or --max-tokens, `not a field`"


@pytest.mark.parametrize(
    ("name", "typed", "field", "value"),
    [
        ("temp", "0.5", "temperature", 0.5),
        ("draft-length", "auto", "draft_length", None),
        ("draft-length", "0", "draft_length", 0),
        ("max-tokens", "-1", "max_tokens", None),
        ("seed", "-1", "seed", None),
        ("stop", "'the end' x", "stop", ("the end", "x")),
        ("stop", "none", "stop", ()),
        ("ignore-eos", "on", "ignore_eos", True),
        ("logit-bias", "7=false 8=-1.5", "logit_bias", ((7, float("-inf")), (8, -1.5))),
    ],
)
def test_what_is_set_is_shown_as_it_was_typed(name, typed, field, value):
    changed = with_setting(ReplyOptions(seed=3, max_tokens=5, stop=("y",)), settable()[name], typed)
    assert getattr(changed if hasattr(changed, field) else changed.sampling, field) == value
    again = with_setting(ReplyOptions(), field, setting_text(changed, field))
    assert again.changed() == ReplyOptions().changed(**{field: value})


@pytest.mark.parametrize(("name", "typed"), [("ignore-eos", "perhaps"), ("top-k", "2.5"), ("temp", "warm")])
def test_what_cannot_be_set(name, typed):
    with pytest.raises(OptionError, match=typed):
        with_setting(ReplyOptions(), settable()[name], typed)


@pytest.mark.parametrize("arguments", [["-qv"], ["-vq"], ["-q", "-v"]])
def test_short_flags_may_be_joined(specli, arguments):
    result = specli("complete", "abc", "-n", "3", *arguments)
    assert result.code == 0
    assert "llama" in result.err  # its log
    assert "reply 3 tokens" not in result.err


@pytest.mark.parametrize("words", ["specli comp", "specli complete --te"])
def test_listing_and_completing_need_no_numpy_and_no_llama_cpp(words):
    environment = {"_SPECLI_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    program = (
        "import os, sys; os.environ |= " + repr(environment) + "\n"
        "from specli.terminal.app import app\n"
        "try: app(prog_name='specli')\n"
        "finally: print(sorted({'numpy', 'llama_cpp'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    *found, loaded = done.stdout.split("\n")[:-1]
    assert loaded == "[]"
    assert found == (["complete", "compare"] if words == "specli comp" else ["--temp"])
