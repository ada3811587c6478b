"""What reaches a terminal: words that stay whole, and Markdown in blocks."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specli.terminal.reply_view import WordWrap, split_blocks

pyte = pytest.importorskip("pyte")


def on_screen(pieces: list[str], width: int) -> list[str]:
    screen = pyte.Screen(width, 200)
    wrap = WordWrap(width)
    pyte.Stream(screen).feed("".join(wrap.add(piece) for piece in pieces).replace("\n", "\r\n"))
    return "\n".join(line.rstrip() for line in screen.display).rstrip("\n").split("\n")


def test_words_stay_whole():
    text = "Just what you are looking for is not here, I am afraid."
    for size in (1, 3, 7):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert on_screen(pieces, 20) == textwrap.wrap(text, 20)


@given(st.lists(st.sampled_from(["a", "bb", "ccc", "dddd", "eeeee"]), min_size=1, max_size=40))
def test_any_words(words):
    text = " ".join(words)
    lines = on_screen(list(text), 12)
    assert " ".join(lines).split() == words
    assert max(len(line) for line in lines) <= 12


@given(st.lists(st.tuples(st.sampled_from(["a", "bb", " ", "c d", "e ", "ffff"]), st.booleans()), max_size=40))
def test_characters_keep_their_styles_when_their_word_moves(pieces):
    screen = pyte.Screen(12, 200)
    wrap = WordWrap(12)
    styled = [wrap.add(text, "\x1b[32m" if green else "") for text, green in pieces]
    pyte.Stream(screen).feed("".join(styled).replace("\n", "\r\n"))
    cells = [screen.buffer[line][column] for line in range(200) for column in range(12)]
    shown = [(cell.data, cell.fg == "green") for cell in cells]
    wanted = [(character, green) for text, green in pieces for character in text]
    assert [one for one in shown if one[0] != " "] == [one for one in wanted if one[0] != " "]


def test_lines_and_long_words():
    assert on_screen(["one\ntwo\n", "x" * 25], 10) == ["one", "two", "x" * 10, "x" * 10, "x" * 5]


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("one\n\ntwo", "one\n\n"),
        ("one\ntwo", ""),
        ("```\na\n\nb\n", ""),
        ("```\na\n\nb\n```\n\nend", "```\na\n\nb\n```\n\n"),
        ("", ""),
    ],
)
def test_blocks(text, whole):
    assert split_blocks(text) == (whole, text[len(whole) :])
