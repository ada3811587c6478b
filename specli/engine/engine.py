"""A loaded pair of models that answers prompts: where decoding, llama and library meet.

Knows how to turn a prompt into a stream of text events. Must not know the terminal; scripts use it as
`specli.generate`.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from types import TracebackType

from specli.decoding.costs import PassCosts
from specli.decoding.loop import Emitted, FinishReason, LoopOptions, Prefilling, decode
from specli.decoding.metrics import Metrics
from specli.decoding.sampling import SamplingOptions
from specli.decoding.schedule import LONGEST_LOOKUP
from specli.decoding.verification import Verifier, make_verifier
from specli.engine.reply import Piece, Reading, Reply, ReplyEvent, ReplyOptions
from specli.engine.speculation import Speculation
from specli.errors import PromptError
from specli.llama.gguf import read_gguf
from specli.llama.memory import require_memory
from specli.llama.model import LlamaModel, LoadOptions, on_gpu, planned_context
from specli.llama.pairing import require_pair
from specli.llama.text import Message, TextStream, chat_prompt, plain_prompt
from specli.models.files import Silent, ensure_file
from specli.models.registry import load_registry


class Engine:
    """A target model, perhaps with a draft model. Close it, or use it in `with`.

    Raises:
        PairError: the draft model cannot serve the target model.
    """

    def __init__(self, target: LlamaModel, draft: LlamaModel | None = None, *, load_seconds: float = 0.0) -> None:
        if draft is not None:
            require_pair(target.vocabulary, draft.vocabulary, target.path.name, draft.path.name)
        self.target = target
        self.draft = draft
        self.load_seconds = load_seconds
        self._cached: list[int] = []  # each model's cache holds a prefix of these tokens
        self._speculation = Speculation()

    @classmethod
    def load(
        cls,
        target: Path,
        draft: Path | None = None,
        target_options: LoadOptions | None = None,
        draft_options: LoadOptions | None = None,
        *,
        progress: Callable[[str, float], None] = lambda name, share: None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> Engine:
        """Load the models and check the pair.

        Args:
            target: the target model's GGUF file.
            draft: the draft model's, or None.
            target_options: how the target is put into memory.
            draft_options: the same for the draft model; the target's if None.
            progress: called with a file's name and its loaded share, 0 to 1.
            interrupted: asked during loading and long passes; True breaks off with `Interrupted`.

        Raises:
            ModelFileError, ModelUnsupportedError, ModelLoadError, PairError, Interrupted.
        """
        started = perf_counter()
        chosen = [(target, target_options), (draft, draft_options or target_options)]
        models = load_models(
            [(path, options) for path, options in chosen if path is not None],
            progress=progress,
            interrupted=interrupted,
        )
        try:
            return cls(*models, load_seconds=perf_counter() - started)
        except BaseException:
            for model in models:
                model.close()
            raise

    def prompt(
        self,
        text: str,
        *,
        system: str | None = None,
        raw: bool = False,
        parse_special: bool = False,
    ) -> list[int]:
        """Return the tokens of a prompt.

        Args:
            text: what the user wrote.
            system: a system prompt before it.
            raw: continue the text instead of answering it; also what happens with a model without a chat template.
            parse_special: read control tokens that the user wrote out.

        Raises:
            PromptError: it is empty, or the chat template refuses it.
        """
        messages = [Message("system", system)] if system else []
        return self.conversation([*messages, Message("user", text)], raw=raw, parse_special=parse_special)

    def conversation(
        self,
        messages: Sequence[Message],
        *,
        raw: bool = False,
        parse_special: bool = False,
        known: Sequence[int] = (),
    ) -> list[int]:
        """Return the tokens of a conversation whose next turn is the model's; see `prompt` and `chat_prompt`.

        Raises:
            PromptError: it is empty, or the chat template refuses it.
        """
        vocabulary = self.target.vocabulary
        for message in messages:
            _require_text(message.content)
        if raw or vocabulary.template is None:
            text = "\n\n".join(message.content for message in messages)
            tokens = plain_prompt(vocabulary, text, parse_special=parse_special)
        else:
            tokens = chat_prompt(vocabulary, messages, parse_special=parse_special, known=known)
        if not tokens:
            raise PromptError("the prompt is empty.", "Give some text as argument, with -f FILE, or on standard input.")
        return tokens

    def reply(
        self,
        prompt: Sequence[int],
        options: ReplyOptions | None = None,
        *,
        verifier: Verifier | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> Generator[ReplyEvent]:
        """Answer a prompt, token by token. What the caches already hold of the prompt is not read again.

        Args:
            prompt: [n] token ids, at least one.
            options: sampling, draft length, when to stop.
            verifier: takes the place of the one that the options name.
            interrupted: asked between tokens; True ends the reply.
        """
        options = options or ReplyOptions()
        seed = secrets.randbits(32) if options.seed is None else options.seed
        sampling = self.sampling(options)
        verifier = verifier or make_verifier(options.verification, seed)
        drafter = self._speculation.drafter(self.target, self.draft, options, self.draft_sampling(options), verifier)

        tokens = list(prompt)
        self._rewind_to_shared(tokens)
        metrics = Metrics(load_seconds=self.load_seconds)
        stream = TextStream(self.target.vocabulary, options.stops)
        newest = ""
        pieces: list[str] = []

        def ends_reply(token: int) -> bool:
            nonlocal newest
            newest = stream.push(token)
            return stream.stopped

        longest = LONGEST_LOOKUP if options.draft_length is None else options.draft_length
        loop_options = LoopOptions(sampling, longest, options.max_tokens)
        events = decode(
            self.target,
            drafter,
            verifier,
            tokens,
            loop_options,
            metrics,
            ends_reply=ends_reply,
            interrupted=interrupted,
        )
        reason: FinishReason = "stop"
        try:
            for event in events:
                match event:
                    case Prefilling(done, total):
                        yield Reading(done, total)
                    case Emitted(token, origin):
                        pieces.append(newest)
                        yield Piece(newest, token, origin)
                    case finished:
                        reason = finished.reason
        finally:
            events.close()
            self._cached = tokens
        tail = stream.finish()
        text = "".join(pieces) + tail
        yield Reply(text, tail, tuple(tokens[len(prompt) :]), reason, seed, metrics)

    def calibrate(
        self, *, again: bool = False, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> PassCosts:
        """Return what passes of these models cost here; see `Speculation.curve`."""
        return self._speculation.curve(self.target, self.draft, again=again, progress=progress)

    def remember(self, options: ReplyOptions) -> None:
        """Keep on disk what replies with these options taught about drafts; see `Speculation.remember`."""
        if self.draft is not None:
            self._speculation.remember(self.target, self.draft, options)

    def use_draft(self, draft: LlamaModel | None) -> None:
        """Draft with another model from now on, or with none; whoever loaded the one before closes it.

        Raises:
            PairError: it cannot serve the target model.
        """
        if draft is self.draft:
            return
        if draft is not None:
            require_pair(self.target.vocabulary, draft.vocabulary, self.target.path.name, draft.path.name)
            draft.rewind(0)
        self.draft = draft

    def forget(self) -> None:
        """Empty the caches, so that the next prompt is read from its beginning."""
        for model in (self.target, self.draft):
            if model is not None:
                model.rewind(0)

    def sampling(self, options: ReplyOptions) -> SamplingOptions:
        """Return what the target is sampled with: end-of-generation tokens are forbidden if they are to be ignored."""
        if not options.ignore_eos:
            return options.sampling
        forbidden = tuple((token, -math.inf) for token in sorted(self.target.end_tokens))
        return replace(options.sampling, logit_bias=(*options.sampling.logit_bias, *forbidden))

    def draft_sampling(self, options: ReplyOptions) -> SamplingOptions:
        """Return what the draft model is sampled with."""
        sampling = self.sampling(options)
        if options.draft_temperature is None:
            return sampling
        return replace(sampling, temperature=options.draft_temperature)

    def _rewind_to_shared(self, tokens: list[int]) -> None:
        """Keep in both caches only what the new prompt begins with."""
        pairs = zip(self._cached, tokens, strict=False)
        shared = next((at for at, (old, new) in enumerate(pairs) if old != new), min(len(self._cached), len(tokens)))
        for model in (self.target, self.draft):
            if model is not None:
                model.rewind(shared)

    def close(self) -> None:
        """Free both models."""
        self.target.close()
        if self.draft is not None:
            self.draft.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def load_models(
    chosen: Sequence[tuple[Path, LoadOptions | None]],
    *,
    progress: Callable[[str, float], None] = lambda name, share: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> list[LlamaModel]:
    """Load models that are to be in memory together: all of them or none.

    Args:
        chosen: each one's GGUF file, and how it is put into memory.
        progress: called with a file's name and its loaded share, 0 to 1.
        interrupted: asked during loading and long passes; True breaks off with `Interrupted`.

    Raises:
        ModelFileError, ModelUnsupportedError, ModelLoadError, Interrupted.
    """
    files = [read_gguf(path) for path, _ in chosen]
    require_memory(
        [
            (file, planned_context(file, options))
            for file, (_, options) in zip(files, chosen, strict=True)
            if not on_gpu(options)
        ]
    )
    models: list[LlamaModel] = []
    try:
        for file, (path, options) in zip(files, chosen, strict=True):

            def share_of(share: float, name: str = path.name) -> None:
                progress(name, share)

            models.append(LlamaModel(path, options, file=file, progress=share_of, interrupted=interrupted))
    except BaseException:
        for model in models:
            model.close()
        raise
    return models


def _require_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PromptError(
            f"the prompt is not UTF-8 text: there is a byte that is none at character {error.start}.",
            "Convert it first, for instance with iconv.",
        ) from None


def generate(
    prompt: str,
    *,
    model: str | None = None,
    draft_model: str | None = None,
    use_draft: bool = True,
    system: str | None = None,
    raw: bool = False,
    load: LoadOptions | None = None,
    options: ReplyOptions | None = None,
) -> Generator[ReplyEvent]:
    """Answer one prompt; the events are `Reading`, `Piece` for each token, and at last `Reply`.

    Args:
        prompt: the text.
        model: a registry name, a .gguf file or `user/repository[:quant]`; the default target if None.
        draft_model: the same for the draft model; the one that belongs to the target if None.
        use_draft: False decodes without a draft model.
        system: a system prompt.
        raw: continue the text instead of answering it.
        load: context, threads, offload.
        options: sampling, draft length, when to stop.

    Raises:
        SpecliError: any of its kinds, before the first event.
    """
    registry = load_registry()
    target = registry.find(model or registry.default_target)
    draft_name = (draft_model or target.draft) if use_draft else None
    target_path = ensure_file(target, Silent())
    draft_path = ensure_file(registry.find(draft_name), Silent()) if draft_name else None
    with Engine.load(target_path, draft_path, load) as engine:
        yield from engine.reply(engine.prompt(prompt, system=system, raw=raw), options)
