"""Names that are loaded when first used."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

LAZY = ("leaderq", "leaderq.testing", "leaderq.zookeeper")


def seen_by_type_checkers(package: str) -> dict[str, str]:
    """Name to module, of all that is imported below ``if TYPE_CHECKING``."""
    source = Path(import_module(package).__file__ or "").read_text()
    block = next(
        one
        for one in ast.parse(source).body
        if isinstance(one, ast.If) and "TYPE_CHECKING" in ast.dump(one.test)
    )
    seen = {}
    for statement in block.body:
        assert isinstance(statement, ast.ImportFrom)
        for alias in statement.names:
            assert alias.asname == alias.name, "a type checker takes it as private"
            seen[alias.name] = str(statement.module)
    return seen


@pytest.mark.parametrize("package", LAZY)
def test_each_name_is_where_type_checkers_see_it(package: str) -> None:
    module, seen = import_module(package), seen_by_type_checkers(package)
    assert module.__all__ == sorted(seen)
    for name, home in seen.items():
        assert getattr(module, name) is getattr(import_module(home), name)


@pytest.mark.parametrize("package", LAZY)
def test_an_unknown_name_is_an_attribute_error_as_in_any_module(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nonsense'"):
        _ = import_module(package).nonsense


def test_importing_loads_nothing() -> None:
    program = f"""
import sys
from importlib import import_module
for package in {LAZY}:
    import_module(package)
loaded = [name for name in sys.modules if name.startswith("leaderq.")]
print([name for name in loaded if name not in {(*LAZY, "leaderq.lazy")}])
"""
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"
