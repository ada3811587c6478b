"""Conversations are what their events make of them."""

from __future__ import annotations

import pytest

from specli.engine.conversation import Conversation
from specli.llama.text import Message


def after(*events) -> Conversation:
    conversation = Conversation()
    for kind, content in events:
        conversation.apply({"type": kind, "content": content, "count": content})
    return conversation


ASKED = [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")]


def test_messages():
    conversation = after(("system", "s"), *ASKED)
    assert conversation.messages == [
        Message("system", "s"), Message("user", "a"), Message("assistant", "b"), Message("user", "c"),
        Message("assistant", "d"),
    ]  # fmt: skip
    assert (conversation.last_user_text, conversation.last_reply, conversation.awaits_reply) == ("c", "d", False)
    assert after(*ASKED, ("system", "")).messages == [Message(*one) for one in ASKED]


@pytest.mark.parametrize(
    ("events", "left"),
    [
        ([*ASKED, ("retract", None)], "abc"),
        ([*ASKED, ("retract", None), ("retract", None)], "abc"),
        ([*ASKED, ("undo", None)], "ab"),
        ([*ASKED, ("user", "e"), ("undo", None)], "abcd"),
        ([*ASKED, ("undo", None), ("undo", None), ("undo", None)], ""),
        ([*ASKED, ("drop", 2)], "cd"),
        ([*ASKED, ("clear", None)], ""),
        ([*ASKED, ("user", "e"), ("user", "f")], "abcdf"),  # the first was never answered
        ([*ASKED, ("start", None), ("remark", "x")], "abcd"),
    ],
)
def test_events(events, left):
    assert "".join(turn.content for turn in after(*events).turns) == left


def test_the_oldest_exchange():
    assert after(*ASKED).oldest_exchange() == [Message("user", "a"), Message("assistant", "b")]
    assert after(*ASKED[:2]).oldest_exchange() == []
    assert after().oldest_exchange() == []


def test_tokens_are_those_of_the_last_prompt_and_its_reply():
    conversation = Conversation()
    asked = []

    def prompt(messages, known):
        asked.append((len(messages), list(known)))
        return [*known, 100 + len(messages)]

    for event in ({"type": "user", "content": "a"}, {"type": "assistant", "content": "b", "tokens": [1, 2]},
                  {"type": "user", "content": "c"}, {"type": "assistant", "content": "d", "tokens": [3]}):  # fmt: skip
        conversation.apply(event, prompt)
    assert asked == [(1, []), (3, [101, 1, 2])]
    assert conversation.tokens == [101, 1, 2, 103, 3]
