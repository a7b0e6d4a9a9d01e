from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("sphinx", reason="pip install '.[docs]'")
DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

from pictures import PICTURES, plots, recording  # noqa: E402  (it stands beside the pages)
from pictures.canvas import Canvas  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def words(picture: Canvas) -> list[str]:
    root = ElementTree.fromstring(picture.file())
    return [str(found.text) for found in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_well_formed_and_says_what_it_shows(name: str) -> None:
    picture = PICTURES[name]()
    for text in (picture.file(), picture.inline()):
        root = ElementTree.fromstring(text)
        assert root.get("role") == "img"
        assert len(root.get("aria-label") or "") > 60
        assert len(list(root.iter(f"{SVG}text"))) > 8
    assert re.search(r"#[0-9a-f]{6}", "".join(picture.parts)) is None  # colours are the style's


def test_a_plot_shows_the_figures_of_its_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "| what happens | who | T | rounds | half | most |\n| --- | --- | --- | --- | --- | --- |\n"
        "| killed | leaderq | 4 s | 30 | 15.5 | 33.9 |\n| killed | kazoo | 4 s | 30 | 4386 | |\n"
    )
    shown = words(plots.failover(page))
    assert {"15.5 ms, 99 % within 33.9 ms", "4.39 s"} <= set(shown)
    page.write_text(page.read_text().replace("15.5", "16.5"))
    assert "16.5 ms, 99 % within 33.9 ms" in words(plots.failover(page))
    with pytest.raises(ValueError, match="no table with the head"):
        plots.drain(page)


def test_the_recording_of_the_readme_is_drawn_from_its_text() -> None:
    text = (DOCS / "demo.txt").read_text()
    title = text.splitlines()[0].partition("\t$ ")[2]
    assert (DOCS / "demo.svg").read_text() == recording.draw(text, title).file()
    assert "billed twice" in text
