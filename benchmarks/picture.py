"""The picture of `--show-draft` in the documents: a real reply, as a terminal shows it.

python benchmarks/picture.py [-o docs/show-draft.svg]
"""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.text import Text

import specli
from specli.decoding.options import SamplingOptions
from specli.terminal.console import stats_line
from specli.terminal.reply_view import ORIGIN_STYLES

PROMPT = "Write a Python function that reverses a linked list, without comments."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", default="docs/show-draft.svg")
    arguments = parser.parse_args()
    console = Console(record=True, width=96)
    legend = (Text(meaning, style=style) for style, meaning in ORIGIN_STYLES.values() if meaning)
    text = Text()
    options = specli.ReplyOptions(SamplingOptions(), draft_length=4, max_tokens=160, seed=2)
    for event in specli.generate(PROMPT, options=options):
        if isinstance(event, specli.Piece):
            text.append(event.text, style=ORIGIN_STYLES[event.origin][0])
        elif isinstance(event, specli.Reply):
            stats = f"{stats_line(event.metrics)} · seed {event.seed}"
    console.print(Text(f'$ specli complete --show-draft --draft-length 4 "{PROMPT}"', style="bold"))
    console.print(Text("  ").join(legend))
    console.print(text)
    console.print(Text(stats, style="dim"))
    console.save_svg(arguments.output, title="specli")


if __name__ == "__main__":
    main()
