"""What is cited by number stands in ``docs/design/facts.md``, where an adopter has it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FACTS = ROOT / "docs" / "design" / "facts.md"
ROW = re.compile(r"^\| (?:bug )?([KZBFD]?\d+) \|", re.MULTILINE)
CITED = re.compile(r"\b([KZBFD][1-9]\d?)\b")
BUGS = re.compile(r"\b[Bb]ugs? (\d+(?:(?:, | and | to )\d+)*)")
SPEC = r"\b[Tt]he spec(ification)?\b|\(spec[,: ]|\bspec,? (fact )?\d"
ELSEWHERE = re.compile(rf"\bDESIGN\b|\bdesign (page|input)\b|{SPEC}")


def known() -> list[str]:
    return ROW.findall(FACTS.read_text())


def cited_in(text: str) -> set[str]:
    bugs = {number for cited in BUGS.findall(text) for number in re.findall(r"\d+", cited)}
    return bugs | set(CITED.findall(text))


def texts() -> Iterator[tuple[Path, str]]:
    for folder in ("leaderq", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".md", ".rst"}:
                yield path.relative_to(ROOT), path.read_text()


def test_what_is_cited_by_number_stands_in_the_facts() -> None:
    facts = set(known())
    missing = {str(path): cited_in(text) - facts for path, text in texts()}
    assert {path: numbers for path, numbers in missing.items() if numbers} == {}


def test_no_page_is_cited_that_an_adopter_does_not_have() -> None:
    found = {str(path): ELSEWHERE.search(text) for path, text in texts()}
    assert {path: match[0] for path, match in found.items() if match} == {}


def test_every_number_of_a_list_is_there_once() -> None:
    numbers = known()
    for letter, least in (("K", 23), ("Z", 20), ("B", 19), ("", 28), ("F", 16), ("D", 22)):
        of_list = [number for number in numbers if number.rstrip("0123456789") == letter]
        assert len(of_list) >= least
        assert of_list == [f"{letter}{number}" for number in range(1, len(of_list) + 1)]
