from __future__ import annotations

import ast
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import grimp
import pytest

import leaderq

ROOT = Path(__file__).parents[2]
PACKAGE = Path(leaderq.__file__).parent


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.py")}


@pytest.fixture(scope="module")
def trees(texts: dict[str, str]) -> dict[str, ast.Module]:
    return {path: ast.parse(text) for path, text in texts.items()}


def test_no_module_imports_itself_by_a_detour():
    graph = grimp.build_graph("leaderq", exclude_type_checking_imports=False, cache_dir=None)
    upstream = {module: graph.find_upstream_modules(module) for module in graph.modules}
    cycles = {
        module: back
        for module, others in upstream.items()
        if (back := {other for other in others if module in upstream[other]})
    }
    assert cycles == {}


def test_no_public_class_name_is_defined_twice(texts):
    names = [name for text in texts.values() for name in re.findall(r"(?m)^class ([A-Z]\w*)", text)]
    assert "LeaderqError" in names
    assert [name for name, times in Counter(names).items() if times > 1] == []


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


def logged(tree: ast.Module) -> Iterator[str]:
    """The texts that a module logs: constants, and variables that hold one."""
    held: dict[str, set[object]] = {}
    calls = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                held.setdefault(getattr(target, "id", ""), set()).add(node.value.value)
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "attr", "") in LEVELS
            and ast.unparse(node.func).rpartition(".")[0].endswith("log")
        ):
            calls.append(node)
    for one in (one for node in calls for one in node.args[:2]):
        said = held.get(one.id, set()) if isinstance(one, ast.Name) else {getattr(one, "value", 0)}
        yield from (text for text in said if isinstance(text, str))


def test_every_log_line_is_a_fixed_phrase_with_its_values_behind_it(trees):
    found = [(path, line) for path, tree in trees.items() for line in logged(tree)]
    assert len(set(found)) > 100
    assert [one for one in found if one[1] not in ELSEWHERE and not FIXED.fullmatch(one[1])] == []


# -- time, threads, chance and who we are come from four modules, whose names can be replaced

SEAMS = ("base.clock", "base.chance", "base.host", "threads.primitives")


def test_nobody_imports_a_name_of_the_seams(texts):
    by_name = re.compile(rf"(?m)^ *from leaderq\.({'|'.join(map(re.escape, SEAMS))}) import")
    assert [path for path, text in texts.items() if by_name.search(text)] == []


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
        for alias in statement.names:
            assert alias.asname == alias.name, "a type checker takes it as private"
            seen[alias.name] = str(statement.module)
    return seen


@pytest.mark.parametrize("package", LAZY)
def test_each_name_is_where_type_checkers_see_it(package):
    module, seen = import_module(package), seen_by_type_checkers(package)
    assert module.__all__ == sorted(seen)
    for name, home in seen.items():
        assert getattr(module, name) is getattr(import_module(home), name)


def test_importing_loads_nothing():
    done = run("-c", f"import {', '.join(LAZY)}, sys; print(*sys.modules)")
    loaded = {name for name in done.stdout.split() if name.startswith("leaderq")}
    assert loaded == {*LAZY, "leaderq.base", "leaderq.base.lazy"}


NOT_LOADED = [
    ("from leaderq import AsyncLeaderCareer, AsyncTerm, LeaderCareer", "asyncio"),
    ("import leaderq; leaderq.schedule(every_s=1)", "cronsim"),
    ("from leaderq.cli import main; main(['--help'])", "kazoo kafka logging leaderq.cli.run"),
    (
        "import leaderq.cli.run, leaderq.running.runner, leaderq.observability.logging",
        "leaderq.observability.http leaderq.observability.metrics http.server prometheus_client",
    ),
    (
        "import leaderq.kafka.career, leaderq.dyno.worker, leaderq.queues.recipes,"
        " leaderq.running.runner",
        "opentelemetry",
    ),
]


@pytest.mark.parametrize(("program", "unused"), NOT_LOADED)
def test_a_program_loads_nothing_that_it_does_not_use(program, unused):
    done = run("-c", f"{program}; import sys; print(*sys.modules, file=sys.stderr)")
    assert done.returncode == 0
    assert set(done.stderr.split()) & set(unused.split()) == set()


OF_THE_REPOSITORY = {".ci/run", ".dockerignore", ".gitignore"}


@pytest.mark.parametrize(
    ("pretence", "told"),
    [
        ("sys.version_info = (3, 9, 1)", f"this is Python 3.9 on {sys.platform}"),
        ("os.name, sys.platform = 'nt', 'win32'", "on win32"),
    ],
)
def test_a_system_that_is_not_supported_is_told_in_one_sentence(pretence, told):
    done = run("-c", f"import os, sys; {pretence}; import leaderq")
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith("ImportError: leaderq needs Python 3.10 or newer, on Linux; this is ")
    assert line.endswith(told)


def test_a_source_distribution_has_all_that_the_repository_has(tmp_path):
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


FUTURES = {"primitives.Future"}


def aliases(tree: ast.Module) -> set[str]:
    """The names by which a module knows the seams."""
    return {
        one.asname or one.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for one in node.names
        if f"{node.module}.{one.name}" in SEAMS
    }


def eager(node: ast.AST, *, in_function: bool = False) -> Iterator[ast.AST]:
    """What is evaluated once: on import, or as the default of a parameter."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        yield from node.args.defaults
        yield from (one for one in node.args.kw_defaults if one is not None)
        body = node.body if isinstance(node.body, list) else [node.body]
        for one in body:
            yield from eager(one, in_function=True)
    elif isinstance(node, ast.AnnAssign) and not in_function:  # annotations are not evaluated
        if node.value is not None:
            yield from eager(node.value)
    else:
        if not in_function:
            yield node
        for one in ast.iter_child_nodes(node):
            yield from eager(one, in_function=in_function)


def test_nothing_of_the_seams_is_captured_on_import_or_as_a_default(trees):
    captured = [
        f"{path}:{part.lineno} {ast.unparse(part)}"
        for path, tree in trees.items()
        if (known := aliases(tree))
        for part in eager(tree)
        if isinstance(part, ast.Attribute) and getattr(part.value, "id", None) in known
    ]
    assert [one for one in captured if one.rpartition(" ")[2] not in FUTURES] == []
