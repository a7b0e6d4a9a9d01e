"""A terminal session as SVG: lines appear as they did. Long pauses are cut short, and of the
lines about the state only the first of each leader is shown.

``python docs/_ext/pictures/recording.py record docs/demo.txt -- leaderq demo`` runs a command and
writes all that it printed, each line behind its second. Without ``record`` the picture beside such
a file is drawn again; a test holds the two equal.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from pictures.canvas import Canvas

LONGEST_PAUSE_S = 1.5
WIDTH, LINE, LETTERS = 900, 18, 117
STATE = re.compile(r"; fed [\d,]+ +billed ")
_STYLE = (
    "@media(prefers-reduced-motion:no-preference){.p g{animation:come .2s both}}"
    "@keyframes come{from{opacity:.15}}"
)


def draw(recorded: str, title: str) -> Canvas:
    """``recorded``: lines of seconds, a tab, and what was printed then."""
    lines = list(_shown(recorded))
    picture = Canvas(WIDTH, 30 + LINE * len(lines), title, _STYLE)
    picture.box(1, 1, WIDTH - 2, 28 + LINE * len(lines))
    shown_s = before_s = 0.0
    for number, (at, words) in enumerate(lines):
        shown_s += min(at - before_s, LONGEST_PAUSE_S)
        before_s = at
        picture.parts.append(f'<g style="animation-delay:{shown_s:.1f}s">')
        picture.text(16, 28 + LINE * number, words, _kind(words))
        picture.parts.append("</g>")
    return picture


def _shown(recorded: str) -> Iterator[tuple[float, str]]:
    is_new = False
    for line in recorded.splitlines():
        at, _, words = line.partition("\t")
        is_state = STATE.search(words) is not None
        if is_new or not is_state:
            for part in textwrap.wrap(words, LETTERS, subsequent_indent=" " * 10) or [""]:
                yield float(at), part
        is_new = " leads term " in words


def _kind(words: str) -> str:
    return "code strong" if words.startswith("$ ") else "code"


def record(command: list[str]) -> str:
    """What ``command`` prints, with the second of each line."""
    began, lines = time.monotonic(), ["0.0\t$ " + " ".join([Path(command[0]).name, *command[1:]])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(f"{time.monotonic() - began:.1f}\t{line.rstrip()}")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    if arguments[0] == "record":
        Path(arguments[1]).write_text(record(arguments[3:]))
        arguments = arguments[1:]
    text = Path(arguments[0])
    title = text.read_text().splitlines()[0].partition("\t$ ")[2]
    text.with_suffix(".svg").write_text(draw(text.read_text(), title).file())


if __name__ == "__main__":
    main(sys.argv[1:])
