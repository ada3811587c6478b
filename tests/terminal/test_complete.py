"""`specli complete` on a tiny pair: what lands on which stream, and what every mistake is answered with."""

from __future__ import annotations

import pytest

ABC = ("complete", "abc", "-n", "12", "--seed", "0", "--ignore-eos")


def test_text_on_stdout_and_the_rest_on_stderr(specli):
    result = specli(*ABC)
    assert result.code == 0
    assert result.out.endswith("\n")
    assert "reply 12 tokens" in result.err
    assert "accepted" in result.err
    assert "\x1b" not in result.out + result.err


def test_quiet(specli):
    loud, quiet = specli(*ABC), specli(*ABC, "-q")
    assert (quiet.out, quiet.err) == (loud.out, "")


def test_json(specli):
    found = specli(*ABC, "--json").json
    assert specli(*ABC).out == found["text"] + "\n" * (not found["text"].endswith("\n"))
    assert found["finish_reason"] == "length"
    assert (found["model"], found["draft_model"], found["seed"]) == ("tiny", "tiny-draft", 0)
    assert found["tokens"]["generated"] == len(found["tokens"]["ids"]) == 12
    counted = found["speculation"]
    assert counted["accepted"] <= counted["tested"] <= counted["drafted"]
    assert counted["accepted"] + counted["rounds"] == 12
    assert counted["acceptance_rate"] == pytest.approx(counted["accepted"] / counted["tested"])
    assert counted["mean_accepted_length"] == pytest.approx(12 / counted["rounds"])
    assert set(found["timing"]) == {
        "load_s",
        "prefill_s",
        "ttft_s",
        "decode_s",
        "draft_s",
        "verify_s",
        "other_s",
        "tokens_per_second",
    }
    assert all(value >= 0 for value in found["timing"].values())


@pytest.mark.parametrize("rule", ["token", "block", "match"])
def test_a_model_that_drafts_for_itself(specli, rule, tiny_file):
    own = ("-md", str(tiny_file), "--draft-length", "4")
    result = specli(*ABC, *own, "--temp", "0", "--verification", rule, "--json").json
    assert result["speculation"]["acceptance_rate"] == 1.0


def test_the_same_seed_gives_the_same_text(specli):
    texts = [specli("complete", "abc", "-n", "30", "--temp", "2", "--top-k", "0", "--min-p", "0", "--seed", seed).out
             for seed in ("5", "5", "6")]  # fmt: skip
    assert texts[0] == texts[1] != texts[2]
    seeds = {specli("complete", "abc", "-n", "1", "--json").json["seed"] for _ in range(3)}
    assert len(seeds) == 3


def test_greedy_text_does_not_depend_on_the_draft(specli):
    wanted = specli("complete", "abc", "-n", "40", "--temp", "0", "--no-draft", "--json").json
    assert wanted["draft_model"] is None
    assert wanted["speculation"]["drafted"] == 0
    for changes in (["--draft-length", "0"], ["-md", "none"], ["--draft-length", "1"], ["--draft-length", "9"]):
        assert specli("complete", "abc", "-n", "40", "--temp", "0", "--json", *changes).json["text"] == wanted["text"]


def test_where_the_prompt_comes_from(specli, tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_bytes(b"two\n")
    for arguments, stdin, prompt in (
        (["abc"], None, "abc"),
        ([], b"abc\n", "abc"),
        (["-"], b"abc\r\n", "abc"),
        (["three"], b"one", "one three"),
        (["-f", str(file)], b"one\n", "one two"),
        (["three", "-f", str(file)], b"one\n", "one two three"),
    ):
        found = specli("complete", *arguments, "-n", "1", "--raw", "--json", stdin=stdin).json
        assert found["tokens"]["prompt"] == len(prompt) + 1


def test_template_system_prompt_and_raw(specli):
    def count(*arguments: str) -> int:
        return specli("complete", "ab", "-n", "1", "--json", *arguments).json["tokens"]["prompt"]

    assert count("--raw") == 3
    assert count() == 1 + 1 + len("user\nab") + 1 + 1 + len("assistant\n")
    assert count("-s", "abc") == count() + 1 + len("system\nabc") + 1


def test_typed_control_tokens(specli):
    def count(*arguments: str) -> int:
        return specli("complete", "a<|end|>", "-n", "1", "--raw", "--json", *arguments).json["tokens"]["prompt"]

    assert count() == 9
    assert count("--parse-special") == 3


def test_stop_strings_end_the_reply(specli):
    whole = specli(*ABC, "--json").json["text"]
    stop = whole[4:6]
    found = specli(*ABC, "--stop", stop, "--stop", "never", "--json").json
    assert found["finish_reason"] == "stop"
    assert found["text"] == whole[: whole.index(stop)]
    assert found["tokens"]["of_text"] == len(found["text"])  # a letter is a token
    assert len(found["tokens"]["ids"]) == found["tokens"]["of_text"] + len(stop)
    assert specli(*ABC, "--stop", stop).out.rstrip("\n") == found["text"].rstrip("\n")


def test_ignore_eos_goes_on(specli):
    for seed in range(3):
        found = specli("complete", "abc", "-n", "300", "--seed", str(seed), "--ignore-eos", "--json").json
        assert (found["finish_reason"], found["tokens"]["generated"]) == ("length", 300)
        assert not {2, 4} & set(found["tokens"]["ids"])


def test_a_reply_that_fills_the_context(specli):
    found = specli("complete", "abc", "-c", "256", "--ignore-eos", "--json")
    assert found.json["finish_reason"] == "context"
    assert found.code == 0
    assert "context of 256 tokens is full" in found.err
    assert "A larger --context holds more, for instance 512." in found.err


def test_a_prompt_that_does_not_fit(specli):
    found = specli("complete", "a" * 300, "-c", "256", "--json")
    assert (found.code, found.out) == (1, "")
    assert "does not fit in a context of 256" in found.err
    assert "Hint: A larger --context" in found.err


def test_logit_bias(specli):
    found = specli("complete", "abc", "-n", "5", "--logit-bias", "7=100", "--logit-bias", "8=false", "--json").json
    assert found["tokens"]["ids"] == [7] * 5


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--temp", "-1"], 2, "--temp is -1.0"),
        (["--top-p", "2"], 2, "--top-p is 2.0, but must be between 0 and 1"),
        (["--min-p", "-0.5"], 2, "--min-p is -0.5"),
        (["--top-k", "-4"], 2, "--top-k is -4"),
        (["--repeat-penalty", "0"], 2, "--repeat-penalty is 0.0"),
        (["-n", "0"], 2, "--max-tokens is 0"),
        (["-n", "-2"], 2, "--max-tokens is -2"),
        (["-n", "many"], 2, "-n"),
        (["--draft-length", "-3"], 2, "--draft-length is -3"),
        (["--verification", "maybe"], 2, "--verification is 'maybe'"),
        (["-c", "0"], 2, "--context is 0"),
        (["-b", "0"], 2, "--batch is 0"),
        (["-t", "0"], 2, "--threads is 0"),
        (["--seed", "-5"], 2, "--seed is -5"),
        (["--gpu-layers", "-1"], 2, "--gpu-layers is -1"),
        (["--logit-bias", "x=1"], 2, "--logit-bias is 'x=1'"),
        (["--logit-bias", "5"], 2, "--logit-bias is '5'"),
        (["--what"], 2, "No such option"),
        (["-m", "none.gguf"], 1, "no file none.gguf"),
        (["-m", "tinny"], 1, "no model named 'tinny'"),
        (["-m", "lost"], 1, "lost.gguf"),
        (["-md", "none.gguf"], 1, "no file none.gguf"),
        (["-m", "."], 1, "is a directory"),
        (["-f", "none.txt"], 1, "cannot read the prompt file none.txt: No such file"),
        (["-f", "."], 1, "Is a directory"),
    ],
)  # fmt: skip
def test_mistakes_get_one_line_and_a_hint(specli, arguments, code, said):
    result = specli("complete", "abc", *arguments)
    assert result.code == code
    assert result.out == ""
    first, second = result.err.rstrip("\n").split("\n")
    assert first.startswith("Error: ")
    assert said in first
    assert second.startswith("Hint: ")


def test_binary_and_empty_input(specli):
    result = specli("complete", stdin=b"\x7fELF\xff")
    assert result.code == 1
    assert "standard input is not UTF-8 text: byte 0xff at offset 4" in result.err
    for stdin in (b"", b"\n", b"  \n "):
        result = specli("complete", stdin=stdin)
        assert (result.code, result.out) == (2, "")
        assert "there is no prompt" in result.err


def test_a_draft_with_another_vocabulary_serves_as_text(specli, tmp_path):
    from tiny import LETTERS, write_tiny_model

    plain = specli("complete", "abc", "-n", "20", "--temp", "0", "--no-draft").out
    shuffled = write_tiny_model(tmp_path / "shuffled.gguf", seed=1, n_vocab=80, letters=LETTERS[::-1])
    lacking = write_tiny_model(tmp_path / "lacking.gguf", seed=1, letters=[*"zyxwvutsrqponmlkjihgfedcba ."])
    for other in (shuffled, lacking):  # the second has no token for many characters
        result = specli("complete", "abc", "-n", "20", "--temp", "0", "-md", str(other))
        assert (result.code, result.out) == (0, plain)


def test_a_target_without_a_known_draft_is_told(specli, tmp_path, tiny_file):
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(tiny_file.read_bytes())
    result = specli("complete", "abc", "-n", "2", "-m", str(copy))
    assert result.code == 0
    assert "Warning: no draft model is known for" in result.err
    assert "Warning" not in specli("complete", "abc", "-n", "2", "-m", str(copy), "--no-draft").err


def test_gpu_layers_without_a_gpu_backend(specli, monkeypatch):
    monkeypatch.setattr("specli.llama.parameters.has_gpu_backend", lambda: False)
    for flag in ("--gpu-layers", "--draft-gpu-layers"):
        result = specli("complete", "abc", "-n", "2", flag, "3")
        assert result.code == 0
        assert f"Warning: {flag} is 3, but this llama.cpp was built without a GPU backend." in result.err
        assert "GGML_CUDA=on" in result.err
        assert "GGML_METAL=on" in result.err


def test_more_context_than_the_model_was_trained_with(specli):
    assert "trained with 2048" in specli("complete", "abc", "-n", "2", "-c", "3000").err


def test_drafts_without_a_draft_model(specli):
    text = "abc hello abc hello abc hello abc hello"
    result = specli(
        "complete", "--raw", text, "-md", "none", "--drafter", "lookup", "-n", "60", "--temp", "0", "--json"
    )
    found = result.json
    assert (result.code, found["draft_model"]) == (0, None)
    plain = specli("complete", "--raw", text, "--no-draft", "-n", "60", "--temp", "0", "--json").json
    assert found["text"] == plain["text"]
    assert plain["speculation"]["drafted"] == 0


def test_automatic_drafts_are_reproducible_with_a_seed(specli):
    arguments = ("complete", "abc", "-n", "60", "--temp", "1.5", "--top-k", "0", "--seed", "3", "--json")
    first, second = specli(*arguments).json, specli(*arguments).json
    assert first["tokens"] == second["tokens"]
    assert first["speculation"] == second["speculation"]
    assert specli(*arguments, "--drafter", "nobody").code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-t", "100000"], "--threads is 100000, but must be between 1 and 512"),
        (["-c", "99999999999"], "must be between 1 and 2147483647"),
        (["--top-k", "99999999999999999999999"], "must be between 0 and 2147483647"),
        (["--draft-length", "100000"], "--draft-length is 100000, but must be between 0 and 64"),
        (["--draft-length", "x"], "must be 'auto', or a whole number"),
        (["--logit-bias", "9999999=1"], "the model's are 0 to 39"),
        (["--stop", ""], "--stop is empty"),
        (["-n", "0"], "--max-tokens is 0, but must be 1 or more"),
    ],
)
def test_numbers_that_are_too_large_or_mean_nothing(specli, arguments, message):
    result = specli("complete", "abc", *arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_text_that_is_no_text(specli):
    result = specli("complete", "a\udcff")
    assert (result.code, result.out) == (1, "")
    assert "not UTF-8 text" in result.err


def test_small_batches_and_contexts(specli):
    assert specli("complete", "abc", "-b", "1", "-n", "5").code == 0
    result = specli("complete", "abc", "-c", "60", "-n", "100", "--ignore-eos", "--json")
    assert result.json["tokens"]["prompt"] + result.json["tokens"]["generated"] == 61


def test_no_arguments_is_help(specli):
    result = specli()
    assert result.code == 2
    assert "Error" not in result.err
    assert "complete" in result.out
