"""Log lines are fixed phrases with the values behind them, so that an operator can grep."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import leaderq

PRODUCT = Path(leaderq.__file__).parent
LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log")
FIXED = re.compile(r"(%s, )?[^%:;]+( [\w.]+=%[^ =]*)*")
ELSEWHERE = {
    # Whole sentences of errors and events, each a fixed phrase where it is made.
    "%s", "%s %s", "%s: %s", "%s: ",
    # The source is the name of the value.
    "figures cannot be read %s=%s",
    # The command is a value with values in it.
    "dead-letter topic takes less than its source, so a larger record that fails stops its"
    " partition topic=%s max.message.bytes=%d command=kafka-configs --alter --topic %s"
    " --add-config max.message.bytes=%d",
}  # fmt: skip


def lines(text: str) -> Iterator[str]:
    """The texts that ``text``, a Python source, logs: constants, and variables that hold one."""
    tree = ast.parse(text)
    for scope in (tree, *(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))):
        held = {
            target.id: node.value.value
            for node in ast.walk(scope)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(scope):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LEVELS
                and ast.unparse(node.func.value).endswith("log")
            ):
                for one in node.args[:2]:
                    said = held.get(one.id) if isinstance(one, ast.Name) else None
                    said = one.value if isinstance(one, ast.Constant) else said
                    if isinstance(said, str):
                        yield said


def is_fixed(line: str) -> bool:
    return line in ELSEWHERE or FIXED.fullmatch(line) is not None


def test_every_log_line_is_a_fixed_phrase_with_its_values_behind_it() -> None:
    found = {
        f"{path.relative_to(PRODUCT)}: {line}": is_fixed(line)
        for path in PRODUCT.rglob("*.py")
        for line in lines(path.read_text())
    }
    assert len(found) > 100
    assert [line for line, fixed in found.items() if not fixed] == []
