"""The public API on a tiny pair: replies whole and in pieces, engines that are reused, and replies that are left."""

from __future__ import annotations

import pytest

import specli

SETTINGS = {"raw": True, "seed": 3, "draft_length": 4, "ignore_eos": True}


@pytest.fixture
def engine(tiny_file, tiny_draft_file):
    with specli.load(tiny_file, tiny_draft_file, context=512) as engine:
        yield engine


def test_a_reply_is_its_text_its_tokens_and_how_it_went(engine):
    reply = engine.complete("abc", max_tokens=20, **SETTINGS)
    assert str(reply) == reply.text
    assert (len(reply.tokens), reply.finish_reason, reply.seed) == (20, "length", 3)
    assert reply.metrics.generated == 20
    assert reply.metrics.drafted > 0
    assert engine.complete("abc", max_tokens=20, **SETTINGS).tokens == reply.tokens


@pytest.mark.parametrize("stop", [(), "p", ("t\np", "zzz")])
def test_pieces_make_up_the_reply(engine, stop):
    pieces = engine.stream("abc", max_tokens=40, stop=stop, **SETTINGS)
    text = "".join(map(str, pieces))
    assert text == pieces.reply.text
    assert all(one not in text for one in ([stop] if isinstance(stop, str) else stop))
    assert engine.complete("abc", max_tokens=40, stop=stop, **SETTINGS).text == text


def test_text_that_could_have_begun_a_stop_string_comes_at_the_end(engine):
    whole = engine.complete("abc", max_tokens=12, **SETTINGS).text
    pieces = list(engine.stream("abc", max_tokens=12, stop=whole[-1] + "never", **SETTINGS))
    assert "".join(map(str, pieces)) == whole
    assert pieces[-1].token is None


@pytest.mark.parametrize("count", [0, 1, 3, 6])
def test_a_reply_that_is_left_leaves_no_trace(engine, count):
    wanted = engine.complete("hello", max_tokens=12, **SETTINGS)
    pieces = engine.stream("abc", max_tokens=40, **SETTINGS)
    taken = [next(pieces) for _ in range(count)]
    assert len(taken) == count
    assert engine.complete("hello", max_tokens=12, **SETTINGS).tokens == wanted.tokens
    assert list(pieces) == []  # the new reply has ended it
    with pytest.raises(specli.SpecliError, match="was not read to its end"):
        _ = pieces.reply


def test_an_engine_may_be_closed_in_the_middle_of_a_reply(tiny_file, tiny_draft_file):
    engine = specli.load(tiny_file, tiny_draft_file, context=512)
    pieces = engine.stream("abc", max_tokens=40, **SETTINGS)
    next(pieces)
    engine.close()
    engine.close()
    assert list(pieces) == []
    pieces.close()
    with pytest.raises(specli.SpecliError, match="is closed"):
        engine.complete("abc", max_tokens=2, **SETTINGS)


def test_a_conversation_reads_only_what_is_new(engine):
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    first = engine.chat(messages, max_tokens=8, temperature=0)
    messages += [{"role": "assistant", "content": str(first)}, specli.Message("user", "more")]
    second = engine.chat(messages, max_tokens=8, temperature=0)
    assert second.metrics.cached >= first.metrics.prompt


@pytest.mark.parametrize("message", [{}, {"role": "user"}, "hello", None])
def test_messages_that_are_none(engine, message):
    with pytest.raises(specli.SpecliError, match="must have a role and content"):
        engine.chat([message])


def test_options_are_named_as_in_python(engine):
    with pytest.raises(specli.SpecliError) as failed:
        engine.complete("abc", temperature=9)
    assert failed.value.field == "temperature"
    assert str(failed.value) == "`temperature` is 9, but must be between 0 and 5."
    with pytest.raises(TypeError, match="warmth"):
        engine.complete("abc", warmth=1)
    with pytest.raises(specli.SpecliError, match=r"`top_k` is 2\.5, but must be a whole number between 0"):
        specli.SamplingOptions(top_k=2.5)
    forbidden = engine.complete("abc", max_tokens=30, logit_bias={20: float("-inf")}, **SETTINGS)
    assert 20 not in forbidden.tokens


def test_a_prompt_that_does_not_fit(engine):
    with pytest.raises(specli.SpecliError, match="does not fit in a context of 512") as failed:
        engine.complete("a" * 600, raw=True)
    assert "A larger `context` holds more" in failed.value.hint
    assert engine.complete("abc", max_tokens=2, **SETTINGS).tokens


def test_pairs_are_found_by_name(tiny_file, tiny_draft_file, home):
    (home / "models.toml").write_text(
        f'[models.tiny]\npath = "{tiny_file}"\ndraft = "small"\n[models.small]\npath = "{tiny_draft_file}"\n'
    )
    with specli.load("tiny", context=256) as engine:
        assert (engine.target.path, engine.draft.path) == (tiny_file, tiny_draft_file)
    with specli.load("tiny", "none", context=256) as engine:
        assert engine.draft is None
    with pytest.raises(specli.SpecliError, match="no model named 'tinny'"):
        specli.load("tinny")


@pytest.mark.parametrize("arguments", [{}, {"use_draft": False}, {"draft_model": "none"}])
def test_generate_loads_answers_and_frees(tiny_file, tiny_draft_file, home, arguments):
    options = specli.ReplyOptions(max_tokens=5, seed=1)
    draft = arguments or {"draft_model": str(tiny_draft_file)}
    *events, reply = specli.generate("abc", model=str(tiny_file), options=options, **draft)
    assert isinstance(reply, specli.Reply)
    assert "".join(event.text for event in events if isinstance(event, specli.Piece)) == reply.text
