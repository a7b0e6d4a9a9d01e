"""``make mutants``: which small edits of the pure modules no test notices."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import kafka  # noqa: F401  (imported once, for all processes that are forked)
import kazoo.client  # noqa: F401
import pytest

from mutation.controls import CONTROLS, Control
from mutation.equivalents import EQUIVALENT
from mutation.modules import MODULES
from mutation.operators import Edit
from mutation.trying import ROOT, Tried, Verdict, each, passes_with, tried, use_profile

SHARE = 0.05
"""Of the edits, so many may survive."""
_LIMITED = ["-otimeout=120"]
"""Threads that wait for ever may use time of the processor now and then."""
BEGIN, END = "<!-- figures -->", "<!-- end of the figures -->"
HEAD = "\n| module | edits | killed | of these hung | survived | equal | s |\n" + "|---" * 7 + "|\n"


class Row(NamedTuple):
    """The figures of one module. ``edits``: without those that are equal."""

    module: str
    edits: int
    killed: int
    hung: int
    survived: int
    equal: int
    took_s: int


def main() -> int:
    options = _options()
    os.chdir(ROOT)
    use_profile()
    sys.dont_write_bytecode = False  # else each child compiles all that it imports, for seconds
    texts = options.only or [""]
    controls = [text.removeprefix("controls") for text in texts if text.startswith("controls")]
    if controls:
        return _try_controls(controls[0].removeprefix(":"), options.jobs)
    rows, is_unfit = [], False
    for module in MODULES:
        if any(text.partition(":")[0] in module for text in texts):
            ids = {text for text in texts if text.startswith(f"{module}:")}
            edits, found = tried(module, MODULES[module], options.jobs, ids or None)
            rows.append(_row(module, edits, found))
            is_unfit = is_unfit or bool(found.unfit)
    number, alive = sum(row.edits for row in rows), sum(row.survived for row in rows)
    print(f"{len(rows)} modules, {number} edits, {alive} survive, {sum(r.took_s for r in rows)} s")
    if options.table:
        _write_table(Path(options.table), rows)
    failed = int(is_unfit or alive > SHARE * number)
    return failed if options.only else max(failed, _try_controls("", options.jobs))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mutation", description=__doc__)
    only = "modules whose name contains the text, an edit by its id, controls, or controls:TEXT"
    parser.add_argument("--only", nargs="+", metavar="TEXT", help=only)
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time (default: 1)")
    parser.add_argument("--table", metavar="FILE", help="put the figures into the table in FILE")
    return parser.parse_args()


def _try_controls(text: str, jobs: int) -> int:
    """Try those in whose title or file the text is. Return 1 if one survives."""
    controls = [one for one in CONTROLS if text in one.title + one.edits[0].file]
    tests = sorted({test for one in controls for test in one.tests})
    if each([partial(passes_with, {}, [*_LIMITED, *tests])], 1, 1200.0) != [Verdict.SURVIVED]:
        print(f"FAILS WITHOUT ANY EDIT: one of {', '.join(tests)}")
        return 1
    verdicts = each([partial(_is_noticed, one) for one in controls], jobs, 240.0)
    found = zip(controls, verdicts, strict=True)
    alive = [one for one, said in found if said is Verdict.SURVIVED]
    for one in alive:
        print(f"NOT KILLED: {one.title}")
    print(f"{len(controls)} controls, {len(controls) - len(alive)} killed")
    return 1 if alive else 0


def _is_noticed(one: Control) -> bool:
    codes = {edit.module: compile(edit.texts()[1], edit.file, "exec") for edit in one.edits}
    return passes_with(codes, [*_LIMITED, *one.tests]) == pytest.ExitCode.TESTS_FAILED


def _row(module: str, edits: Sequence[Edit], found: Tried) -> Row:
    """The figures of one module, which are printed, with the edits that survive or hang."""
    for nodeid in found.unfit:
        print(f"FAILS WITHOUT ANY EDIT: {nodeid}")
    alive = [edit for edit in edits if found.verdicts[edit.id] is Verdict.SURVIVED]
    for edit in edits:
        if edit.id in EQUIVALENT and edit not in alive:
            print(f"LISTED AS EQUAL, BUT NOTICED: {edit.id}")
    survived = [edit for edit in alive if edit.id not in EQUIVALENT]
    hung = [edit for edit in edits if found.verdicts[edit.id] is Verdict.TIMED_OUT]
    equal, killed = len(alive) - len(survived), len(edits) - len(alive)
    figures = killed + len(survived), killed, len(hung), len(survived), equal
    row = Row(module, *figures, round(found.took_s))
    print(*(f"{name} {value}" for name, value in row._asdict().items()), sep="  ", flush=True)
    for edit in [*hung, *survived]:
        print(f"  {found.verdicts[edit.id].value:12}{_said(edit)}", flush=True)
    return row


def _said(edit: Edit) -> str:
    """The edit in a few lines: of a long statement only what surrounds the change."""
    first = len(os.path.commonprefix([edit.before, edit.after]))  # noqa: RUF071
    begin = max(0, first - 60)
    before, after = (text[begin : first + 80] for text in (edit.before, edit.after))
    where = f"{edit.id}  {edit.function}:{edit.line}  {edit.operator}"
    return f"{where}\n      - {before}\n      + {after}"


def _write_table(path: Path, rows: Sequence[Row]) -> None:
    """Put the rows in the place of those of the same modules, which stand between two marks."""
    before, rest = path.read_text().split(BEGIN)
    table, after = rest.split(END)
    cells = [line.strip("| ").split(" | ") for line in table.splitlines() if "| " in line]
    known = {line[0]: line[1:] for line in cells} | {row.module: [*row[1:]] for row in rows}
    lines = {name: known[name] for name in MODULES if name in known}
    sums = [sum(map(int, column)) for column in zip(*lines.values(), strict=True)]
    lines[f"*all {len(lines)}*"] = sums
    shown = (f"| {name} | {' | '.join(map(str, figures))} |\n" for name, figures in lines.items())
    path.write_text(before + BEGIN + HEAD + "".join(shown) + END + after)


if __name__ == "__main__":
    sys.exit(main())
