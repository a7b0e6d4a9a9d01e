"""``make mutants``: which small edits of the pure modules no test notices."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import kafka  # noqa: F401  (imported once, for all processes that are forked)
import kazoo.client  # noqa: F401

from mutation.controlling import run_controls
from mutation.controls import CONTROLS, Control
from mutation.equivalents import EQUIVALENT
from mutation.modules import MODULES
from mutation.operators import Edit
from mutation.trying import Tried, Verdict, edits_in, tried, use_profile

ROOT = Path(__file__).parents[2]
SHARE = 0.05
"""Of the edits, so many may survive."""
BEGIN, END = "<!-- figures -->", "<!-- end of the figures -->"


def main() -> int:
    options = _options()
    os.chdir(ROOT)
    use_profile()
    chosen = [module for module in MODULES if _is_chosen(module, options.only)]
    ids = {text for text in options.only or () if ":" in text}
    if options.list:
        for module in chosen:
            for edit in edits_in(module):
                print(_said(edit))
        return 0
    if options.only and (controls := _chosen_controls(options.only)):
        return _try_controls(controls, options.jobs)
    rows = []
    for module in chosen:
        only = {text for text in ids if text.startswith(module.removeprefix("leaderq.") + ":")}
        rows.append(_tried(module, options.jobs, only or None))
    failed = _sum_up(rows)
    if options.table:
        _write_table(Path(options.table), rows)
    return failed if options.only else max(failed, _try_controls(CONTROLS, options.jobs))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mutation", description=__doc__)
    only = "modules whose name contains the text, an edit by its id, controls, or controls:TEXT"
    parser.add_argument("--only", nargs="+", metavar="TEXT", help=only)
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time (default: 1)")
    parser.add_argument("--table", metavar="FILE", help="put the figures into the table in FILE")
    parser.add_argument("--list", action="store_true", help="list the edits, and try none")
    return parser.parse_args()


def _is_chosen(module: str, texts: Sequence[str] | None) -> bool:
    short = module.removeprefix("leaderq.")
    return texts is None or any(text.partition(":")[0] in short for text in texts)


def _chosen_controls(texts: Sequence[str]) -> list[Control]:
    """All of them for ``controls``; for ``controls:TEXT`` those in whose name or file it is."""
    wanted = [text.partition(":")[2] for text in texts if text.partition(":")[0] == "controls"]
    return [one for one in CONTROLS if any(text in one.name + one.file for text in wanted)]


def _try_controls(controls: Sequence[Control], jobs: int) -> int:
    trouble = run_controls(controls, jobs)
    for one, said in trouble:
        print(f"NOT KILLED: {one.name}: {said}")
    print(f"{len(controls)} controls, {len(controls) - len(trouble)} killed")
    return 1 if trouble else 0


class Row:
    """The figures of one module."""

    def __init__(self, module: str, edits: Sequence[Edit], found: Tried) -> None:
        self.module = module
        self.took_s = found.took_s
        self.unfit = found.unfit
        self.edits = [edit for edit in edits if edit.id in found.verdicts]
        kept = {Verdict.SURVIVED, Verdict.NOT_REACHED}
        alive = [edit for edit in self.edits if found.verdicts[edit.id] in kept]
        self.same = [edit for edit in alive if edit.id in EQUIVALENT]
        self.survivors = [edit for edit in alive if edit.id not in EQUIVALENT]
        self.verdicts = found.verdicts
        self.tried = len(self.edits) - len(self.same)
        self.killed = self.tried - len(self.survivors)
        self.hung = [edit for edit in self.edits if found.verdicts[edit.id] is Verdict.TIMED_OUT]


def _tried(module: str, jobs: int, only: set[str] | None) -> Row:
    row = Row(module, edits_in(module), tried(module, MODULES[module], jobs, only))
    for nodeid in row.unfit:
        print(f"FAILS WITHOUT ANY EDIT: {nodeid}")
    for edit in row.edits:
        if edit.id in EQUIVALENT and edit not in row.same:
            print(f"LISTED AS EQUAL, BUT NOTICED: {edit.id}")
    print(_line(row), flush=True)
    for edit in [*row.hung, *row.survivors]:
        print(f"  {row.verdicts[edit.id].value:12}{_said(edit)}", flush=True)
    return row


def _line(row: Row) -> str:
    share = row.killed / row.tried if row.tried else 1.0
    return (
        f"{row.module.removeprefix('leaderq.'):34} edits {row.tried:4}  killed {row.killed:4}"
        f" (hung {len(row.hung):2})"
        f"  survived {len(row.survivors):3}  {share:7.1%}  equal {len(row.same):3}"
        f"  {row.took_s:5.0f} s"
    )


def _said(edit: Edit) -> str:
    """The edit in a few lines: of a long statement only what surrounds the change."""
    before, after = edit.before, edit.after
    first = len(os.path.commonprefix([before, after]))  # noqa: RUF071
    same = len(os.path.commonprefix([before[first:][::-1], after[first:][::-1]]))  # noqa: RUF071
    begin = max(0, first - 60)
    lines = [f"{edit.id}  {edit.function}:{edit.line}  {edit.operator}"]
    for sign, text in (("-", before), ("+", after)):
        end = min(len(text), len(text) - same + 40)
        shown = f"{'...' * (begin > 0)}{text[begin:end]}{'...' * (end < len(text))}"
        lines.append(f"      {sign} {shown}")
    return "\n".join(lines)


def _write_table(path: Path, rows: Sequence[Row]) -> None:
    """Put the rows in the place of those of the same modules, which stand between two marks."""
    before, rest = path.read_text().split(BEGIN)
    table, after = rest.split(END)
    lines = {line.split(" ")[1]: line for line in table.splitlines() if line.startswith("| ")}
    for row in rows:
        figures = (row.tried, row.killed, len(row.hung), len(row.survivors), len(row.same))
        name = row.module.removeprefix("leaderq.")
        lines[name] = f"| {name} | {' | '.join(map(str, figures))} | {row.took_s:.0f} |"
    known = [name.removeprefix("leaderq.") for name in MODULES]
    kept = [lines[name] for name in known if name in lines]
    columns = list(zip(*([cell.strip() for cell in line.split("|")] for line in kept), strict=True))
    sums = [sum(map(int, each)) if "-" not in each else "-" for each in columns[2:8]]
    head = ["| module | edits | killed | of these hung | survived | equal | s |", "|---" * 7 + "|"]
    total = f"| *all {len(kept)}* | {' | '.join(map(str, sums))} |"
    path.write_text(before + BEGIN + "\n".join(["", *head, *kept, total, ""]) + END + after)


def _sum_up(rows: Sequence[Row]) -> int:
    edits, alive = sum(row.tried for row in rows), sum(len(row.survivors) for row in rows)
    took_s = sum(row.took_s for row in rows)
    print(f"{len(rows)} modules, {edits} edits, {alive} survive, {took_s:.0f} s")
    fails = any(row.unfit for row in rows)
    return 1 if fails or alive > SHARE * edits else 0


if __name__ == "__main__":
    began_s = time.monotonic()
    sys.exit(main())
