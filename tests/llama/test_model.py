"""The real llama.cpp: feeding, rewinding, and everything that would end the process is refused before."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tiny import write_tiny_model

from specli.decoding.options import SamplingOptions
from specli.decoding.sampling import distribution
from specli.engine.engine import Engine
from specli.engine.options import ReplyOptions
from specli.engine.reply import Piece
from specli.errors import DecodeError, Interrupted, ModelFileError, ModelLoadError, OptionError
from specli.llama.binding import llama_cpp
from specli.llama.model import LlamaModel, load_vocabulary
from specli.llama.options import LoadOptions
from specli.llama.parameters import MAX_ROWS, default_threads

TEXT = [1, *range(5, 37)]


@pytest.fixture
def model(tiny_file):
    with LlamaModel(tiny_file, LoadOptions(context=256, batch=32, threads=1)) as loaded:
        yield loaded


def close(first, second) -> bool:
    return bool(np.abs(np.asarray(first) - np.asarray(second)).max() < 1e-3)


def test_sizes_are_read_back(model):
    assert (model.n_context, model.batch_size, model.max_rows, model.n_vocab) == (256, 32, 32, 40)
    assert model.end_tokens == {2, 4}
    assert default_threads() >= 1


def test_rows_do_not_depend_on_how_tokens_are_fed(model):
    whole = model.feed(TEXT[:20], rows=20).copy()
    model.rewind(0)
    single = [model.feed([token], rows=1)[0].copy() for token in TEXT[:20]]
    assert close(whole, single)


@pytest.mark.parametrize("rows", [0, 1, 5, 32])
@pytest.mark.parametrize("count", [32, 33, 36, 63, 64, 65, 100])
def test_any_number_of_tokens_is_split_into_passes(model, rows, count):
    tokens = (TEXT * 4)[:count]
    found = model.feed(tokens, rows=rows).copy()
    assert (found.shape, model.n_past) == ((rows, 40), count)
    if rows:
        model.rewind(count - rows)
        assert close(found[0], model.feed(tokens[count - rows :][:1], rows=1)[0])


def test_feeding_nothing_changes_nothing(model):
    model.feed(TEXT[:5], rows=0)
    assert model.feed([], rows=0).shape == (0, 40)
    assert model.n_past == 5


def test_a_rewound_cache_is_as_good_as_a_new_one(model):
    model.feed(TEXT[:8], rows=0)
    expected = model.feed([9, 10, 11], rows=3).copy()
    model.rewind(8)
    model.feed([20, 21, 22, 23], rows=4)
    model.rewind(8)
    assert model.n_past == 8
    assert close(model.feed([9, 10, 11], rows=3), expected)
    model.rewind(100)  # nothing to do
    assert model.n_past == 11


def test_rows_are_a_view(model):
    rows = model.feed(TEXT[:3], rows=1)
    assert not rows.flags.owndata


def test_what_would_end_the_process_is_refused(model):
    for tokens in ([40], [-1], [5, 2**31 - 1]):
        with pytest.raises(DecodeError, match="token ids must be"):
            model.feed(tokens, rows=1)
    with pytest.raises(AssertionError):
        model.feed([5, 6], rows=3)
    with pytest.raises(AssertionError):
        model.feed(TEXT * 3, rows=33)
    model.feed((TEXT * 8)[:250], rows=0)
    with pytest.raises(DecodeError, match="do not fit in a context of 256"):
        model.feed(TEXT[:7], rows=1)
    assert model.n_past == 250
    assert model.feed(TEXT[:6], rows=6).shape == (6, 40)
    assert MAX_ROWS == 65


def test_a_long_pass_can_be_broken_off(tiny_file):
    stop = False
    with LlamaModel(tiny_file, LoadOptions(context=512, batch=256), interrupted=lambda: stop) as model:
        model.feed(TEXT[:4], rows=0)
        expected = model.feed([7], rows=1).copy()
        model.rewind(4)
        stop = True
        with pytest.raises(Interrupted):
            model.feed((TEXT * 8)[:200], rows=1)
        stop = False
        assert model.n_past == 4
        assert close(model.feed([7], rows=1), expected)


def test_loading_tells_how_far_it_is_and_can_be_broken_off(tiny_file):
    shares: list[float] = []
    LlamaModel(tiny_file, progress=shares.append).close()
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    with pytest.raises(Interrupted):
        LlamaModel(tiny_file, interrupted=lambda: True)


def test_closing_twice(tiny_file):
    model = LlamaModel(tiny_file)
    model.close()
    model.close()
    model.rewind(0)
    with pytest.raises(DecodeError, match="closed"):
        model.feed(TEXT, rows=1)


@pytest.mark.parametrize("draft_length", [0, 3])
def test_a_reply_that_is_given_up_after_its_models_were_closed(tiny_file, draft_length):
    engine = Engine.load(tiny_file, tiny_file)
    events = engine.reply(TEXT, ReplyOptions(draft_length=draft_length, ignore_eos=True, seed=1))
    while not isinstance(next(events), Piece):
        pass
    engine.close()
    events.close()


@pytest.mark.parametrize(
    "options", [{"context": 0}, {"batch": 0}, {"threads": 0}, {"gpu_layers": -1}, {"context": 2**40}]
)
def test_options_out_of_bounds(options):
    (value,) = options.values()
    with pytest.raises(OptionError, match=str(value)):
        LoadOptions(**options)


def test_files_llama_cpp_refuses(tiny_file, tmp_path):
    missing = tmp_path / "missing.gguf"
    for load in (LlamaModel, load_vocabulary):
        with pytest.raises(ModelFileError):
            load(missing)
    data = tiny_file.read_bytes()
    assert data.count(b"blk.0.attn_q.weight") == 1
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(data.replace(b"blk.0.attn_q.weight", b"blk.0.attn_X.weight"))
    with pytest.raises(ModelLoadError) as caught:
        LlamaModel(broken)
    assert "attn_q" in caught.value.message  # llama.cpp's own reason
    unknown = tmp_path / "unknown.gguf"
    unknown.write_bytes(data.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0lloma"))
    with pytest.raises(ModelLoadError):
        LlamaModel(unknown)


def test_a_sliding_window_is_never_rewound_wrongly(model_file):
    rng = np.random.default_rng(0)
    with LlamaModel(model_file("gemma3-270m"), LoadOptions(context=2048)) as model:
        tokens = [2, *rng.integers(1000, 20_000, size=1400).tolist()]
        model.feed(tokens, rows=0)
        model.rewind(1398)  # a rejected draft: the window is still there
        assert model.n_past == 1398
        near = model.feed(tokens[1398:1400], rows=1)[0].copy()
        model.rewind(600)  # far back: the window before 600 is gone, so all must be read again
        assert model.n_past == 0
        far = model.feed(tokens[:610], rows=1)[0].copy()
    with LlamaModel(model_file("gemma3-270m"), LoadOptions(context=2048)) as fresh:
        assert np.abs(fresh.feed(tokens[:610], rows=1)[0] - far).max() < 0.05
        fresh.rewind(0)
        assert np.abs(fresh.feed(tokens[:1400], rows=1)[0] - near).max() < 1.0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "sampling",
    [
        SamplingOptions(),
        SamplingOptions(0.5, 7, 0.6, 0.01),
        SamplingOptions(1.3, 0, 0.9, 0.0),
        SamplingOptions(1.0, 0, 1.0, 0.1),
        SamplingOptions(0.7, 20, 0.8, 0.02, repeat_penalty=1.4, frequency_penalty=0.3, presence_penalty=0.2),
        SamplingOptions(1.0, 12, 1.0, 0.0, repeat_penalty=1.2, repeat_last_n=5, logit_bias=((3, 4.0), (8, -2.5))),
        SamplingOptions(1.0, 0, 1.0, 0.0, logit_bias=((1, -math.inf),)),
    ],
)
def test_filters_are_those_of_llama_cpp(seed, sampling):
    rng = np.random.default_rng(seed)
    size = 300
    logits = rng.normal(0, 4, size).astype(np.float32)
    history = rng.integers(0, size, 30).tolist() * 2
    expected = llama_cpp_probabilities(logits, sampling, history)
    found = distribution(logits, sampling, history)
    assert np.abs([found.probability(token) for token in range(size)] - expected).max() < 1e-4


def llama_cpp_probabilities(logits, sampling: SamplingOptions, history) -> np.ndarray:
    """What llama.cpp's own sampler chain makes of the same logits."""
    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    size = len(logits)
    if sampling.logit_bias:
        bias = (llama_cpp.llama_logit_bias * len(sampling.logit_bias))(*sampling.logit_bias)
        llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_logit_bias(size, len(bias), bias))
    last_n = sampling.repeat_last_n if sampling.repeat_last_n >= 0 else 10_000
    penalties = (sampling.repeat_penalty, sampling.frequency_penalty, sampling.presence_penalty)
    for sampler in (
        llama_cpp.llama_sampler_init_penalties(size, last_n, *penalties),
        llama_cpp.llama_sampler_init_top_k(sampling.top_k),
        llama_cpp.llama_sampler_init_top_p(sampling.top_p, 1),
        llama_cpp.llama_sampler_init_min_p(sampling.min_p, 1),
        llama_cpp.llama_sampler_init_temp(sampling.temperature),
    ):
        llama_cpp.llama_sampler_chain_add(chain, sampler)
    for token in history:
        llama_cpp.llama_sampler_accept(chain, token)
    data = (llama_cpp.llama_token_data * size)(*((token, float(logit), 0.0) for token, logit in enumerate(logits)))
    array = llama_cpp.llama_token_data_array(data, size, -1, False)
    llama_cpp.llama_sampler_apply(chain, array)
    kept = [(array.data[at].id, array.data[at].logit) for at in range(array.size)]
    llama_cpp.llama_sampler_free(chain)
    probs = np.zeros(size)
    highest = max(logit for _, logit in kept)
    for token, logit in kept:
        probs[token] = math.exp(logit - highest)
    return probs / probs.sum()


def test_two_tiny_models_of_one_seed_are_equal(tmp_path):
    first, second = (write_tiny_model(tmp_path / f"{name}.gguf", seed=5) for name in "ab")
    assert first.read_bytes() == second.read_bytes()
