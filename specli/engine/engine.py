"""A loaded pair of models that answers prompts."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from time import perf_counter
from typing import Any

from specli.decoding.costs import PassCosts
from specli.decoding.loop import Emitted, FinishReason, LoopOptions, Origin, PromptProgress, decode
from specli.decoding.metrics import Metrics
from specli.decoding.options import SamplingOptions
from specli.decoding.schedule import LONGEST_LOOKUP
from specli.decoding.verification import Verifier, make_verifier
from specli.engine.options import ReplyOptions
from specli.engine.reply import Piece, Reply, ReplyEvent, ReplyStream
from specli.engine.speculation import Speculation
from specli.errors import ContextFullError, PromptError, TemplateError
from specli.llama.loading import load_models
from specli.llama.model import LlamaModel
from specli.llama.options import LoadOptions
from specli.llama.text import Message, TextStream, chat_prompt, plain_prompt


class Engine:
    """A target model, perhaps with a draft model. Close it, or use it in `with`.

    An engine makes one reply at a time: a new one ends the one before. It may be used by one thread at a time.

    Raises:
        PairError: the draft model cannot serve the target model.
    """

    def __init__(self, target: LlamaModel, draft: LlamaModel | None = None, *, load_seconds: float = 0.0) -> None:
        self.target = target
        self.draft = draft
        self.load_seconds = load_seconds
        self._speculation = Speculation(target, draft)
        self._running: Generator[ReplyEvent] | None = None

    @classmethod
    def load(
        cls,
        target: Path,
        draft: Path | None = None,
        options: LoadOptions | None = None,
        *,
        progress: Callable[[str, float], None] = lambda name, share: None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> Engine:
        """Load a target and perhaps a draft model from GGUF files, and check the pair.

        `progress` is called with a file's name and its loaded share, 0 to 1; `interrupted` is asked during loading and
        long passes, and True breaks off with `Interrupted`.

        Raises:
            ModelFileError, ModelUnsupportedError, ModelLoadError, PairError, Interrupted.
        """
        started = perf_counter()
        options = options or LoadOptions()
        chosen = [(target, options), (draft, options.for_draft())]
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
        self, text: str, *, system: str | None = None, raw: bool = False, parse_special: bool = False
    ) -> list[int]:
        """Return the tokens of a prompt; the arguments are those of `complete`.

        Raises:
            PromptError: it is empty, clearly does not fit in the context, or the chat template refuses it.
        """
        messages = [Message("system", system)] if system else []
        try:
            return self.conversation([*messages, Message("user", text)], raw=raw, parse_special=parse_special)
        except TemplateError as error:
            raise TemplateError(error.message, f"{error.hint} `raw` continues the prompt as plain text.") from error

    def conversation(
        self, messages: Sequence[Message], *, raw: bool = False, parse_special: bool = False, known: Sequence[int] = ()
    ) -> list[int]:
        """Return the tokens of a conversation whose next turn is the model's; see `prompt` and `chat_prompt`.

        Raises:
            PromptError: it is empty, its last message clearly does not fit in the context, or the chat template
                refuses it.
        """
        self.target.require_open()
        vocabulary = self.target.vocabulary
        strange = (at for at, token in enumerate(known) if not 0 <= token < vocabulary.size)
        known = known[: next(strange, len(known))]  # those of a session may be another model's
        for message in messages:
            require_text(message.content)
        # Before the whole is turned into tokens, which can take a minute. Earlier messages can be dropped.
        if messages and (excess := vocabulary.excess(messages[-1].content, self.target.n_context)):
            raise ContextFullError(
                f"the prompt has at least {excess[0]} tokens and does not fit in a context of {self.target.n_context}.",
                f"A larger `context` holds more; this takes about {excess[1]} tokens.",
            )
        if raw or vocabulary.template is None:
            text = "\n\n".join(message.content for message in messages)
            tokens = plain_prompt(vocabulary, text, parse_special=parse_special)
        else:
            tokens = chat_prompt(vocabulary, messages, parse_special=parse_special, known=known)
        if not tokens:
            raise PromptError("the prompt is empty.", "Give it some text.")
        return tokens

    def complete(
        self,
        prompt: str,
        *,
        system: str | None = None,
        raw: bool = False,
        parse_special: bool = False,
        options: ReplyOptions | None = None,
        **changes: Any,
    ) -> Reply:
        """Answer a prompt and return the whole reply.

        Args:
            prompt: what the user wrote.
            system: a system prompt before it.
            raw: continue the text instead of answering it; so it is with a model that has no chat template.
            parse_special: read control tokens that the user wrote out.
            options: how the reply is generated.
            **changes: single options, such as `temperature=0, max_tokens=64`; see `ReplyOptions.changed`.

        Raises:
            PromptError: the prompt is empty, does not fit in the context, or the chat template refuses it.
            OptionError: an option is out of its bounds.
            DecodeError: llama.cpp failed.
        """
        return self.stream(
            prompt, system=system, raw=raw, parse_special=parse_special, options=options, **changes
        ).finish()

    def stream(
        self,
        prompt: str,
        *,
        system: str | None = None,
        raw: bool = False,
        parse_special: bool = False,
        options: ReplyOptions | None = None,
        **changes: Any,
    ) -> ReplyStream:
        """Answer a prompt piece by piece; arguments and errors as for `complete`."""
        chosen = (options or ReplyOptions()).changed(**changes)
        tokens = self.prompt(prompt, system=system, raw=raw, parse_special=parse_special)
        return ReplyStream(self.reply(tokens, chosen))

    def chat(
        self, messages: Sequence[Message | Mapping[str, str]], *, options: ReplyOptions | None = None, **changes: Any
    ) -> Reply:
        """Answer a conversation and return the whole reply; what the caches hold of it already is not read again.

        Each message has a role ("system", "user", "assistant") and its content; the last one is the user's. Options
        and errors are those of `complete`.
        """
        chosen = (options or ReplyOptions()).changed(**changes)
        tokens = self.conversation([_message(one) for one in messages], known=self.target.tokens)
        return ReplyStream(self.reply(tokens, chosen)).finish()

    def reply(
        self,
        prompt: Sequence[int],
        options: ReplyOptions | None = None,
        *,
        verifier: Verifier | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> Generator[ReplyEvent]:
        """Answer a prompt as events: `PromptProgress`, a `Piece` for each token, and at last a `Reply`.

        The prompt is [n] token ids, n at least 1; what the caches hold of it already is not read again. A `verifier`
        takes the place of the one that the options name. `interrupted` is asked between tokens; True ends the reply.

        Raises:
            ContextFullError: the prompt does not fit in the context.
        """
        if len(prompt) > self.target.n_context:
            message = f"the prompt has {len(prompt)} tokens and does not fit in a context of {self.target.n_context}."
            enough = max(2 * self.target.n_context, len(prompt) + 1024)
            raise ContextFullError(message, f"A larger `context` holds more, for instance {enough}.")
        self._end_reply()
        self._running = self._reply(prompt, options or ReplyOptions(), verifier, interrupted)
        return self._running

    def _reply(
        self, prompt: Sequence[int], options: ReplyOptions, verifier: Verifier | None, interrupted: Callable[[], bool]
    ) -> Generator[ReplyEvent]:
        seed = secrets.randbits(32) if options.seed is None else options.seed
        verifier = verifier or make_verifier(options.verification, seed)
        drafter = self._speculation.drafter(options, self.draft_sampling(options), verifier)
        tokens = list(prompt)
        self._speculation.rewind(tokens)
        metrics = Metrics(load_seconds=self.load_seconds)
        stream = TextStream(self.target.vocabulary, options.stop)
        pieces: list[str] = []
        reason: FinishReason = "stop"  # at a stop string; otherwise the loop says why
        origin: Origin = "target"
        longest = LONGEST_LOOKUP if options.draft_length is None else options.draft_length
        loop_options = LoopOptions(self.sampling(options), longest, options.max_tokens)
        events = decode(self.target, drafter, verifier, tokens, loop_options, metrics, interrupted=interrupted)
        try:
            for event in events:
                match event:
                    case PromptProgress():
                        yield event
                    case Emitted(token, origin):
                        pieces.append(stream.push(token))
                        yield Piece(pieces[-1], token, origin)
                        if stream.stopped:
                            break
                    case finished:
                        reason = finished.reason
        finally:
            events.close()
        if rest := stream.finish():
            pieces.append(rest)
            yield Piece(rest, None, origin)
        text, ids = "".join(pieces), tuple(tokens[len(prompt) :])
        sizes = accumulate(len(self.target.vocabulary.piece(token)) for token in ids)
        spelling = sum(size <= len(text.encode()) for size in sizes) if stream.stopped else len(ids)
        yield Reply(text, ids, reason, seed, metrics, spelling, stream.pending)

    def _end_reply(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None

    def calibrate(self, *, again: bool = False) -> PassCosts:
        """Return what passes of these models cost here; see `Speculation.curve`."""
        return self._speculation.curve(again=again)

    def remember(self, options: ReplyOptions) -> None:
        """Keep on disk what replies with these options taught about drafts; see `Speculation.remember`."""
        self._speculation.remember(options)

    def use_draft(self, draft: LlamaModel | None) -> None:
        """Draft with another model from now on, or with none; whoever loaded the one before closes it.

        Raises:
            PairError: it cannot serve the target model.
        """
        if draft is self.draft:
            return
        self._speculation.use_draft(draft)
        self._end_reply()
        self.draft = draft

    def forget(self) -> None:
        """Empty the caches, so that the next prompt is read from its beginning."""
        for model in filter(None, (self.target, self.draft)):
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
        own = options.draft_temperature
        return sampling if own is None else replace(sampling, temperature=own)

    def close(self) -> None:
        """End the reply in flight and free both models; safe to call twice."""
        self._end_reply()
        for model in filter(None, (self.target, self.draft)):
            model.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def require_text(text: str) -> None:
    """Refuse what was made of bytes that are no UTF-8.

    Raises:
        PromptError: there is such a byte.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"the prompt is not UTF-8 text: there is a byte that is none at character {error.start}."
        raise PromptError(message, "Convert it first, for instance with iconv.") from None


def _message(message: Message | Mapping[str, str]) -> Message:
    if isinstance(message, Message):
        return message
    try:
        return Message(str(message["role"]), str(message["content"]))
    except (KeyError, TypeError):
        hint = 'For instance {"role": "user", "content": "Hello"}.'
        raise PromptError(f"a message is {message!r}, but must have a role and content.", hint) from None
