"""What README, CONTRIBUTING and the pages of docs/ name is there, and what is cited by number."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest
from standing import stands

from leaderq.election.layout import Layout
from leaderq.kafka.assembly import transactional_id
from leaderq.kafka.dead_letters.replay import replay_group
from leaderq.kafka.handling.on_error import dead_letter_topic
from leaderq.running.command import VARIABLES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LITERAL = re.compile(r"``([^`]+)``")
IDENTIFIER = re.compile(r"^@?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*$")
NAMED = re.compile(r"^[\w./-]*\w/[\w./-]*$|^\w+\.(?:py|rst|md|cfg|toml|txt)$")


def test_every_path_that_contributing_names_is_there():
    text = " ".join((ROOT / "CONTRIBUTING.rst").read_text().split())
    named = {word for word in LITERAL.findall(text) if NAMED.match(word)} - {"logs/"}
    assert {"setup.cfg", "kafka/handling/on_error.py", "tests/mutation"} <= named
    assert [each for each in sorted(named) if not places(each)] == []
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"\bmake ([a-z-]+)", text)
    assert [each for each in targets if f"\n{each}:" not in makefile] == []


def test_every_name_of_a_recipe_stands_in_a_file_that_the_recipe_names():
    text = (ROOT / "CONTRIBUTING.rst").read_text()
    recipes = re.split(r"^\* ", text.partition("The usual changes")[2], flags=re.MULTILINE)[1:]
    lost = []
    for recipe in recipes:
        words = LITERAL.findall(" ".join(recipe.split()))
        files = [place for word in words if NAMED.match(word) for place in places(word)]
        inside = [file for each in files if each.is_dir() for file in each.rglob("*.py")]
        texts = [each.read_text().lower() for each in (*files, *inside) if each.is_file()]
        known = " ".join(" ".join(texts).split())
        names = [word.lstrip("@").rpartition(".")[2] for word in words if IDENTIFIER.match(word)]
        lost += [name for name in names if files and not re.search(rf"\b{name.lower()}\b", known)]
    assert lost == []


def places(name: str) -> list[Path]:
    """Where a path of the page can be: in the checkout, in the package, or in the tests."""
    return [
        base / name for base in (ROOT, ROOT / "leaderq", ROOT / "tests") if (base / name).exists()
    ]


def test_every_file_of_ours_that_a_design_page_names_is_there():
    files = {
        f"/{path.relative_to(ROOT)}"
        for folder in ("leaderq", "tests", "benchmarks", "examples")
        for path in (ROOT / folder).rglob("*.py")
    }
    for page in sorted((DOCS / "design").glob("*.md")):
        named = re.findall(r"`([\w/]+\.py)`", page.read_text())
        assert [each for each in named if not any(f.endswith(f"/{each}") for f in files)] == []


@pytest.mark.parametrize("name", ["README", "CONTRIBUTING", "CHANGELOG"])
def test_a_page_that_no_build_of_the_docs_reads_is_well_formed(name: str) -> None:
    core = pytest.importorskip("docutils.core", reason="pip install '.[docs]'")
    told = io.StringIO()
    options = {"warning_stream": told, "report_level": 2}
    core.publish_doctree((ROOT / f"{name}.rst").read_text(), settings_overrides=options)
    assert told.getvalue() == ""


def test_the_table_of_contributing_has_the_layers_of_the_contract() -> None:
    contracts = ConfigParser()
    contracts.read(ROOT / "setup.cfg")
    lines = contracts["importlinter:contract:layers"]["layers"].split("\n")
    layers = [sorted(line.split(" | ")) for line in lines if line]
    text = (ROOT / "CONTRIBUTING.rst").read_text()
    shown: dict[int, list[str]] = {}
    for name, level in re.findall(r"^``(\w+)`` +(\d+) +\w", text, re.MULTILINE):
        shown.setdefault(int(level), []).append(name)
    assert {level: sorted(names) for level, names in shown.items()} == dict(enumerate(layers, 1))
    packages = {path.parent.name for path in (ROOT / "leaderq").glob("*/__init__.py")}
    assert packages <= {name for names in layers for name in names}


def test_the_table_of_what_carries_a_careers_name_says_the_names_that_are_used():
    page = (DOCS / "operating.rst").read_text()
    layout = Layout("/leaderq", "billing")
    names = (
        layout.base,
        layout.offsets,
        transactional_id("billing", "billing", "/leaderq"),
        dead_letter_topic("billing"),
        replay_group("billing"),
        f"{VARIABLES}CAREER",
    )
    assert [name for name in names if f"``{name}``" not in page] == []


FACTS = ROOT / "docs" / "design" / "facts.md"
ROW = re.compile(r"^\| (?:bug )?([KZBFD]?\d+) \|", re.MULTILINE)
CITED = re.compile(r"\b([KZBFD][1-9]\d?)\b")
BUGS = re.compile(r"\b[Bb]ugs? (\d+(?:(?:, | and | to )\d+)*)")


def known() -> list[str]:
    return ROW.findall(FACTS.read_text())


def test_what_is_cited_by_number_stands_in_the_facts():
    for path in (*(ROOT / "leaderq").rglob("*.py"), *DOCS.rglob("*.rst"), *DOCS.rglob("*.md")):
        text = path.read_text()
        bugs = {number for cited in BUGS.findall(text) for number in re.findall(r"\d+", cited)}
        assert bugs | set(CITED.findall(text)) <= set(known()), path


def test_every_number_of_a_list_is_there_once():
    numbers = known()
    for letter, least in (("K", 23), ("Z", 20), ("B", 19), ("", 28), ("F", 16), ("D", 22)):
        of_list = [number for number in numbers if number.rstrip("0123456789") == letter]
        assert len(of_list) >= least
        assert of_list == [f"{letter}{number}" for number in range(1, len(of_list) + 1)]


TESTS = ROOT / "tests"
NOT_QUICK = {"cli": "acceptance/cli", "testing": "integration/servers"}
LISTED = (TESTS / "quick.txt").read_text().splitlines()


def test_each_package_with_tests_on_servers_has_one_that_stands_in_the_quick_run():
    packages = [path.parent.name for path in ROOT.glob("leaderq/*/__init__.py")]
    homes = [TESTS / NOT_QUICK.get(package, f"integration/{package}") for package in packages]
    wanted = {str(home.relative_to(ROOT)) for home in homes if home.is_dir()}
    assert sorted(str(Path(line.partition("::")[0]).parent) for line in LISTED) == sorted(wanted)
    assert all(stands(line) for line in LISTED)


STEP = re.compile(r"`([\w/]+\.py):\s+([\w.]+)`")


def test_each_step_of_the_lives_is_done_by_a_function_that_is_there() -> None:
    text = (DOCS / "design" / "lives.md").read_text()
    lives = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert [life.splitlines()[0] for life in lives] == ["A term", "A batch", "An item", "A message"]
    for life in lives:
        steps = re.findall(r"^\d+\. .+?(?=^\d+\. |\Z)", life, re.MULTILINE | re.DOTALL)
        assert 8 <= len(steps) <= 11
        assert [step for step in steps if not STEP.search(step)] == []
    for file, name in STEP.findall(text):
        assert stands(f"leaderq/{file}::{name.replace('.', '::')}"), name


SPEC = r"\b[Tt]he spec(ification)?\b|\(spec[,: ]|\bspec,? (fact )?\d"
ELSEWHERE = re.compile(rf"\bDESIGN\b|\bdesign (page|input)\b|{SPEC}")


def texts() -> Iterator[tuple[Path, str]]:
    for folder in ("leaderq", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".md", ".rst"}:
                yield path.relative_to(ROOT), path.read_text()


def test_no_page_is_cited_that_an_adopter_does_not_have():
    found = {str(path): ELSEWHERE.search(text) for path, text in texts()}
    assert {path: match[0] for path, match in found.items() if match} == {}
