"""The built-in prompts, and prompts of the user's own."""

from __future__ import annotations

from collections import Counter

import pytest

from specli.errors import OptionError, PromptError
from specli.evaluation.prompts import builtin_prompts, load_prompts, parse_prompts
from specli.llama.text import Message


def test_at_least_three_built_in_prompts_of_each_class():
    counts = Counter(prompt.kind for prompt in builtin_prompts())
    assert set(counts) == {
        "code", "edit", "explanation", "story", "maths", "summary", "extraction", "chat", "translation"
    }  # fmt: skip
    assert min(counts.values()) >= 3
    assert len({prompt.messages for prompt in builtin_prompts()}) == len(builtin_prompts())
    assert all(len(prompt.messages) == 3 for prompt in builtin_prompts() if prompt.kind == "chat")


def test_choosing_classes():
    assert load_prompts("builtin") == builtin_prompts()
    assert {prompt.kind for prompt in load_prompts("builtin:story, code")} == {"story", "code"}
    with pytest.raises(OptionError, match="no class 'poem'"):
        load_prompts("builtin:poem")


def test_files_of_text_and_of_objects(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text('First one\n\n  Second one  \n{"prompt": "Third", "class": "x", "system": "Be brief."}\n'
                    '{"messages": [{"role": "user", "content": "Fourth"}]}\n')  # fmt: skip
    first, second, third, fourth = load_prompts(str(file))
    assert (first.name, second.name, third.name, fourth.name) == ("own-1", "own-2", "x-1", "own-3")
    assert second.messages == (Message("user", "Second one"),)
    assert third.messages == (Message("system", "Be brief."), Message("user", "Third"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": ', "line 1 is not a prompt: Expecting value"),
        ('{"prompt": 3}', "line 1 is not a prompt"),
        ('{"prompt": " "}', "line 1 is not a prompt"),
        ('{"question": "x"}', "line 1 is not a prompt"),
        ('{"prompt": "x", "class": 4}', "expected 'str | null', got 'int' at 'class'"),
        ('{"messages": []}', "line 1 is not a prompt"),
        ('{"messages": "x"}', "line 1 is not a prompt"),
        ('{"messages": [3]}', "line 1 is not a prompt"),
        ('{"messages": [{"role": "assistant", "content": "x"}]}', "line 1 is not a prompt"),
        ("", "there is no prompt in somewhere"),
    ],
)
def test_lines_that_are_no_prompt(line, message):
    with pytest.raises(PromptError, match=message):
        parse_prompts(line, "somewhere")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(PromptError, match="No such file"):
        load_prompts(str(tmp_path / "lost.txt"))
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(PromptError, match="not UTF-8"):
        load_prompts(str(tmp_path / "latin.txt"))
