"""What templates do with messages, and how much time and memory they get."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from damage import changed

from specli.engine.engine import Engine
from specli.errors import PromptError, TemplateError
from specli.llama import templates
from specli.llama.model import load_vocabulary
from specli.llama.templates import Message, render_template
from specli.llama.text import chat_prompt, plain_prompt
from specli.llama.vocabulary import Vocabulary


def rendered(template: str, *texts: str, system: str | None = None) -> str:
    vocabulary = SimpleNamespace(template=template, begin_token=None, end_token=None, text=lambda token: "")
    messages = [Message("user", text) for text in texts]
    return render_template(vocabulary, [*([Message("system", system)] if system else []), *messages]).text


LOOP = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
PARTS = "{% for m in messages %}[{% for part in m.content %}{{ part.text }}{% endfor %}]{% endfor %}"
NO_SYSTEM = "{% for m in messages if m.role != 'system' %}[{{ m.content }}]{% endfor %}"


@pytest.mark.parametrize("template", [LOOP, PARTS, PARTS.replace("part.text", "part['type'] ~ part['text']")])
def test_messages_are_text_or_parts_as_the_template_reads_them(template):
    assert rendered(template, "a", "b").replace("text", "") == "[a][b]"


def test_templates_that_change_letters_are_not_refused():
    assert rendered(LOOP.replace("content", "content | upper"), "a") == "[A]"
    assert rendered(LOOP.replace("content", "content | replace('b', 'cc')"), "ab") == "[acc]"


@pytest.mark.parametrize("template", ["hello", "{{ messages[-1].content }}", "{{ messages[0].role }}: "])
def test_what_the_user_said_is_not_dropped(template):
    with pytest.raises(TemplateError, match="drops what the user said"):
        rendered(template, "e", "hello")


def test_the_system_prompt_is_not_dropped():
    assert rendered(NO_SYSTEM, "a") == "[a]"
    with pytest.raises(TemplateError, match="drops the system prompt") as caught:
        rendered(NO_SYSTEM, "a", system="s")
    assert "Leave out" in caught.value.hint


def test_the_process_is_kept_and_restarted():
    rendered(LOOP, "a")
    process = templates._process._process
    rendered(LOOP, "a")
    assert templates._process._process is process
    process.kill()
    assert rendered(LOOP, "a") == "[a]"


def test_the_hint_names_raw_only_where_it_exists(tiny_file, monkeypatch):
    monkeypatch.setattr(Vocabulary, "template", "{{ raise_exception('no') }}")
    with Engine.load(tiny_file) as engine:
        with pytest.raises(PromptError) as caught:
            engine.prompt("a", system="s")
        assert "`raw`" in caught.value.hint
        with pytest.raises(PromptError) as caught:
            engine.conversation([Message("user", "a")])
        assert "raw" not in caught.value.hint


def test_a_prompt_has_no_end_token_and_an_empty_template_is_none(tiny_file, tmp_path):
    path = changed(
        tiny_file, tmp_path / "x.gguf", tokenizer__ggml__add_eos_token=(7, True), tokenizer__chat_template=(8, b" \n")
    )
    vocabulary = load_vocabulary(path)
    assert vocabulary.adds_end_token
    assert vocabulary.end_token not in plain_prompt(vocabulary, "abc")
    assert vocabulary.template is None
    with pytest.raises(PromptError, match="no chat template"):
        chat_prompt(vocabulary, [Message("user", "a")])


def test_a_text_far_too_long_is_refused_at_once(tiny_file):
    with Engine.load(tiny_file) as engine, pytest.raises(PromptError, match="at least"):
        engine.prompt("abc " * 500_000)
