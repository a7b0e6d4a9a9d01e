"""What the source code keeps to: imports, names, log lines; and that it can be installed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import grimp
import pytest

import leaderq

PACKAGE = Path(leaderq.__file__).parent


def cycles(graph: grimp.ImportGraph) -> set[frozenset[str]]:
    """The sets of modules that import each other, directly or not."""
    upstream = {module: graph.find_upstream_modules(module) for module in graph.modules}
    found = set()
    for module, others in upstream.items():
        if back := {other for other in others if module in upstream[other]}:
            found.add(frozenset({module, *back}))
    return found


def test_no_module_imports_itself_by_a_detour() -> None:
    graph = grimp.build_graph("leaderq", exclude_type_checking_imports=False, cache_dir=None)
    assert [sorted(cycle) for cycle in cycles(graph)] == []


def test_what_is_imported_by_its_name_is_an_edge_that_the_import_linter_sees() -> None:
    for path in Path(leaderq.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text())
        seen = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        named = {
            node.args[0].value
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module"
            and isinstance(node.args[0], ast.Constant)
        }
        own = ".".join(("leaderq", *path.relative_to(PACKAGE).parent.parts))
        hidden = {name for name in named if name.startswith("leaderq.")} - seen
        assert {name for name in hidden if not name.startswith(own)} == set(), path


# -- one word, one idea: no public class name is defined twice


def test_no_public_class_name_is_defined_twice() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(PACKAGE)))
    assert "LeaderqError" in homes
    twice = {name: places for name, places in homes.items() if len(places) > 1}
    assert twice == {}


# -- log lines are fixed phrases with the values behind them, so that an operator can grep

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


# -- names that are loaded when first used

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


# -- what a user installs: a source distribution that can be tested, on a system that is supported

ROOT = Path(__file__).parents[2]
OF_THE_REPOSITORY = {".ci/run", ".dockerignore", ".gitignore"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("pretence", "told"),
    [
        ("sys.version_info = (3, 9, 1)", f"this is Python 3.9 on {sys.platform}"),
        ("os.name, sys.platform = 'nt', 'win32'", "on win32"),
    ],
)
def test_a_system_that_is_not_supported_is_told_in_one_sentence(pretence: str, told: str) -> None:
    done = run("-c", f"import os, sys; {pretence}; import leaderq")
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith("ImportError: leaderq needs Python 3.10 or newer, on Linux; this is ")
    assert line.endswith(told)


def test_a_source_distribution_has_all_that_the_repository_has(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", reason="pip install '.[dev]'")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this is not a checkout")
    # Beside the tree, which must stay as it is.
    build = ["egg_info", "--egg-base", str(tmp_path), "sdist", "--dist-dir", str(tmp_path)]
    done = run("-W", "ignore", "-c", "from setuptools import setup; setup()", "--quiet", *build)
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        packed = {name.partition("/")[2] for name in tar.getnames()}
    wanted = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    assert wanted - packed == OF_THE_REPOSITORY
