"""The lookup index against a plain search, growing, shrinking and replaced."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specli.decoding.lookup import LookupIndex, Match

texts = st.lists(st.integers(0, 2), max_size=60)


def plain_search(tokens: list[int]) -> Match | None:
    """The longest match among the eight latest positions after a run of three equal tokens."""
    end = len(tokens)
    found = [at for at in range(end - 1, 2, -1) if end >= 3 and tokens[at - 3 : at] == tokens[end - 3 :]]
    best = None
    for at in found[:8]:
        length = 3
        while length < min(at, 64) and tokens[at - 1 - length] == tokens[end - 1 - length]:
            length += 1
        if best is None or length > best.length:
            best = Match(at, length)
    return best


@given(texts)
def test_finding(tokens):
    index = LookupIndex()
    index.extend(tokens)
    assert index.find() == plain_search(tokens)


@given(texts, st.lists(st.tuples(st.integers(0, 60), texts), max_size=5))
def test_a_text_that_changes_is_as_good_as_a_new_one(tokens, changes):
    index = LookupIndex()
    index.extend(tokens)
    for length, more in changes:
        index.rewind(length)
        tokens = [*tokens[:length], *more]
        index.extend(tokens)
        assert (len(index), index.find()) == (len(tokens), plain_search(tokens))
    for other in (tokens[::-1], tokens):
        index.replace(other)
        assert index.find() == plain_search(other)
    index.rewind(0)
    assert (index.find(), index._latest) == (None, {})


def test_continuations():
    index = LookupIndex()
    index.extend([1, 2, 3, 4, 5, 9, 1, 2, 3])
    match = index.find()
    assert match == Match(3, 3)
    assert index.continuation(match, 4) == [4, 5, 9, 1]
    assert index.continuation(match, 12) == [4, 5, 9, 1, 2, 3, 4, 5, 9, 1, 2, 3]  # on into itself


def test_the_longest_match_wins_over_the_latest():
    index = LookupIndex()
    index.extend([7, 1, 2, 3, 4, 0, 8, 1, 2, 3, 5, 0, 7, 1, 2, 3])
    assert index.continuation(index.find(), 1) == [4]


def test_the_work_does_not_grow_with_the_text():
    """Counted in steps, not in seconds: positions looked at, and tokens compared."""

    class Counted(list):
        reads = 0

        def __getitem__(self, at):
            Counted.reads += 1
            return super().__getitem__(at)

    index = LookupIndex()
    index._tokens = Counted()
    index.extend([1, 2, 3] * 100_000)
    Counted.reads = 0
    index.extend([*index._tokens, 1])
    index.find()
    index.rewind(300_000)
    assert Counted.reads < 1500
