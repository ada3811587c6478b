"""The slash commands of the chat."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from specli.engine.options import ReplyOptions
from specli.errors import OptionError, PromptError
from specli.state import atomic, sessions
from specli.state.reading import decoded, read_file
from specli.terminal import console
from specli.terminal.chat import editor
from specli.terminal.chat.state import Chat
from specli.terminal.options import settable, setting_text, with_setting


class Leave(Exception):
    """The chat is over."""


def run(chat: Chat, line: str) -> None:
    """Run a command that was typed, slash included.

    Raises:
        SpecliError: there is no such command, or its argument cannot be used.
        Leave: the chat is over.
    """
    name, _, argument = line.partition(" ")
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"Did you mean {near[0]}?" if near else "/help lists all commands; '//' begins a message with a slash."
        raise OptionError(f"there is no command {name}.", hint)
    action, usage, _ = COMMANDS[name]
    if argument.strip() and not usage:
        raise OptionError(f"{name} takes nothing, but was given {argument.strip()!r}.", "/help lists all commands.")
    action(chat, argument.strip())


def _help(chat: Chat, argument: str) -> None:
    rows = [(f"{name} {usage}".strip(), text) for name, (_, usage, text) in COMMANDS.items()]
    console.print_facts(rows)
    console.print_line('Alt-Enter begins a new line, and so does Enter after an opening """. \'//\' sends a slash.')


def _system(chat: Chat, argument: str) -> None:
    if argument:
        chat.happen({"type": "system", "content": "" if argument == "none" else argument})
    console.note(f"System prompt: {chat.conversation.system or 'none'}")


def _set(chat: Chat, argument: str) -> None:
    name, _, value = argument.partition(" ")
    if not value.strip():
        raise OptionError("/set needs a name and a value.", "For instance /set temp 0.5; /params shows all of them.")
    chat.options = with_option(chat.options, name.removeprefix("--"), value.strip())
    _params(chat, "")


def with_option(reply: ReplyOptions, name: str, value: str) -> ReplyOptions:
    """Return reply options with one of them changed, checked like the flag of that name.

    Raises:
        OptionError: there is no such option, or the value is out of its bounds.
    """
    known = settable()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known)}."
        raise OptionError(f"/set knows no option {name!r}.", hint)
    return with_setting(reply, known[name], value)


def _params(chat: Chat, argument: str) -> None:
    console.print_line(", ".join(f"{name} {setting_text(chat.options, field)}" for name, field in settable().items()))


def _draft(chat: Chat, argument: str) -> None:
    if argument in ("on", "auto"):
        chat.options = replace(chat.options, draft_length=None)
    elif argument == "off":
        chat.options = replace(chat.options, draft_length=0)
    elif re.fullmatch(r"-?[0-9]+", argument):
        chat.options = with_setting(chat.options, "draft_length", argument)
    elif argument:
        chat.use_draft(argument)
    length = chat.options.draft_length
    how = "auto" if length is None else "off" if length == 0 else f"{length} tokens"
    console.note(f"Draft model: {chat.draft_name or 'none'}; drafts: {how}")


def _stats(chat: Chat, argument: str) -> None:
    if argument not in ("", "on", "off"):
        raise OptionError(f"/stats is {argument!r}, but must be on or off.", "/stats off hides the line under replies.")
    chat.show_stats = argument == "on" if argument else not chat.show_stats
    console.note(f"Figures after a reply: {'on' if chat.show_stats else 'off'}")


def _regen(chat: Chat, argument: str) -> None:
    if not chat.conversation.turns:
        raise OptionError("there is no reply to make again.", "Say something first.")
    if not chat.conversation.awaits_reply:
        chat.happen({"type": "retract"})
    chat.answer()


def _undo(chat: Chat, argument: str) -> None:
    text = chat.conversation.last_user_text
    if text is None:
        raise OptionError("there is nothing to undo.", "/help lists all commands.")
    chat.happen({"type": "undo"})
    console.note(f"Taken back: {_short(text)}")


def _edit(chat: Chat, argument: str) -> None:
    text = editor.edit(argument)
    if text.strip():
        chat.say(text)


def _edit_last(chat: Chat, argument: str) -> None:
    before = chat.conversation.last_user_text
    if before is None:
        raise OptionError("there is no message to edit.", "/edit begins a new one.")
    text = argument or editor.edit(before)
    if text.strip():
        chat.happen({"type": "undo"})
        chat.say(text)


def _save(chat: Chat, argument: str) -> None:
    if not argument:
        console.note(f"The session is kept in {chat.session.path}" if chat.session else "There is no session file.")
        return
    path = Path(os.path.expanduser(argument))
    if os.path.lexists(path):
        raise OptionError(f"{path} exists already.", "Choose another name.")
    parts = [f"# {message.role}\n\n{message.content}\n" for message in chat.conversation.messages]
    try:
        atomic.write_text(path, "\n".join(parts))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OptionError(f"cannot write {path}: {reason}.", "Choose another name.") from None
    console.note(f"Written to {path}")


def _load(chat: Chat, argument: str) -> None:
    chat.resume(sessions.session_path(argument or None))


def _sessions(chat: Chat, argument: str) -> None:
    found = sessions.list_sessions()
    if not found:
        console.note("There is no session yet.")
        return
    rows = [(one.name, one.changed.strftime("%Y-%m-%d %H:%M"), one.model, one.first_words) for one in found[:20]]
    console.print_table(["name", "changed", "model", "first words"], rows)


def _read(chat: Chat, argument: str) -> None:
    if not argument:
        raise OptionError("/read needs a file.", "For instance /read notes.txt; it goes before your next message.")
    path = Path(os.path.expanduser(argument))
    try:
        text = decoded(read_file(path))
    except OSError as error:
        raise PromptError(f"cannot read {path}: {error.strerror}.", "Check the path.") from None
    except ValueError as error:
        raise PromptError(f"{path} is {error}.", "Convert it first, for instance with iconv.") from None
    chat.attached.append(text.rstrip("\n"))
    tokens = len(chat.engine.target.vocabulary.tokenize(text, add_special=False, parse_special=False))
    console.note(f"{path.name}, {tokens} tokens, goes before your next message.")


def _copy(chat: Chat, argument: str) -> None:
    text = chat.conversation.last_reply
    if text is None:
        raise OptionError("there is no reply to copy.", "Say something first.")
    for command in (["pbcopy"], ["wl-copy"], ["xclip", "-selection", "clipboard"], ["clip.exe"]):
        if shutil.which(command[0]):
            done = subprocess.run(command, input=text.encode(), check=False, stderr=subprocess.DEVNULL)
            if done.returncode == 0:
                console.note("Copied.")
                return
    raise OptionError("no program was found that can copy.", "Install wl-copy or xclip, or use /save FILE.md.")


def _clear(chat: Chat, argument: str) -> None:
    chat.happen({"type": "clear"})
    console.note("The conversation is empty.")


def _exit(chat: Chat, argument: str) -> None:
    raise Leave


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 50 else line[:49] + "…"


Command = tuple[Callable[[Chat, str], None], str, str]

COMMANDS: dict[str, Command] = {
    "/help": (_help, "", "List the commands."),
    "/system": (_system, "[TEXT|none]", "Set the system prompt, or show it."),
    "/set": (_set, "NAME VALUE", "Change an option of sampling or drafting, named like its flag."),
    "/params": (_params, "", "Show the options."),
    "/draft": (_draft, "[on|off|N|MODEL]", "Draft or not, how many tokens, with which model."),
    "/stats": (_stats, "[on|off]", "Figures after each reply."),
    "/regen": (_regen, "", "Make the last reply again."),
    "/undo": (_undo, "", "Take back your last message and its reply."),
    "/edit": (_edit, "[TEXT]", "Write a message in $EDITOR."),
    "/edit-last": (_edit_last, "[TEXT]", "Change your last message and send it again."),
    "/read": (_read, "FILE", "Put a file before your next message."),
    "/save": (_save, "FILE.md", "Write the conversation as Markdown."),
    "/load": (_load, "[NAME]", "Go on with a session, the latest if not named."),
    "/sessions": (_sessions, "", "List the sessions."),
    "/copy": (_copy, "", "Copy the last reply."),
    "/clear": (_clear, "", "Forget the conversation."),
    "/exit": (_exit, "", "Leave; so does Ctrl-D."),
}
