from __future__ import annotations

import logging
from dataclasses import dataclass, field, make_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest

from leaderq import LeaderCareer
from leaderq.config import Settings, load
from leaderq.config.own_options import made_options
from leaderq.config.schema import schema
from leaderq.errors import ConfigurationError
from leaderq.testing import drive


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Options:
    folder: Path
    count: int = 1
    every_s: float = 1.0
    dry: bool = False
    mode: Literal["fast", "safe"] = "fast"
    color: Color = Color.RED
    names: tuple[str, ...] = ()
    sizes: list[int] = field(default_factory=list)
    limit: int | None = None
    rest: Any = None
    Loud: str = ""
    sums: dict[str, int] = field(default_factory=dict)
    pair: tuple[str, int] = ("", 0)
    level: Literal[1, 2] = 1

    def __post_init__(self) -> None:
        assert self.count != 13, "13 is unlucky"


class Job(LeaderCareer):
    options: Options
    Options = Options

    def execute(self, term: Any) -> None:
        term.finish()


def taken(tmp_path: Path, toml: str = "", career: type[LeaderCareer] = Job, **environ: str) -> Any:
    (tmp_path / "leaderq.toml").write_text(f"[careers.job.options]\n{toml}")
    variables = {f"LEADERQ_OPTIONS_{name}": text for name, text in environ.items()}
    made = career()
    made._take(load(environ=variables, folder=tmp_path, career="job").settings)
    return made.options


def test_values_of_a_file_have_the_types_of_the_fields(tmp_path):
    toml = (
        'folder = "/a"\ncount = 2\nevery_s = 3\ndry = true\nmode = "safe"\ncolor = "blue"\n'
        'names = ["x", "y"]\nsizes = [1, 2]\nlimit = 5\nrest = { deep = 1 }\n'
        'pair = ["x", 1]\nlevel = 2\n'
    )
    assert taken(tmp_path, toml) == Options(
        *(Path("/a"), 2, 3.0, True, "safe", Color.BLUE, ("x", "y"), [1, 2], 5, {"deep": 1}),
        pair=("x", 1),
        level=2,
    )


def test_text_of_variables_is_converted_and_wins(tmp_path):
    given = {"COUNT": "7", "EVERY_S": "0.5", "DRY": "yes", "NAMES": "x, y", "SIZES": "1,2"}
    found = taken(tmp_path, "folder = '/a'\ncount = 2", **given, LIMIT="3", LOUD="hey", MODE="")
    assert found == Options(
        *(Path("/a"), 7, 0.5, True, "fast", Color.RED, ("x", "y"), [1, 2], 3, None, "hey")
    )


@pytest.mark.parametrize(
    ("toml", "environ", "said"),
    [
        ("count = '2'", {}, "count of [careers.job.options]: '2' is not of type int"),
        ("count = true", {}, "count of [careers.job.options]: True is not of type int"),
        ("names = 'x'", {}, "names of [careers.job.options]: 'x' is not a list"),
        ("sizes = [1, 'x']", {}, "is not of type int"),
        ("mode = 'slow'", {}, "'slow' is not a choice; write one of fast, safe"),
        ("color = 'RED'", {}, "write one of red, blue"),
        ("limit = 'x'", {}, "is not of type int"),
        ("dry = 1", {}, "is neither on nor off"),
        ("", {"COUNT": "two"}, "LEADERQ_OPTIONS_COUNT: 'two' is not a number"),
        ("", {"DRY": "perhaps"}, "LEADERQ_OPTIONS_DRY: 'perhaps' is neither on nor off"),
        ("fodler = 'x'", {}, "fodler of [careers.job.options] is not an option of Options"),
        ("fodler = 'x'", {}, "did you mean 'folder'?"),
        ("", {}, "option folder of career 'job' is not set; write it in [careers.job.options]"),
        ("folder = '/a'\ncount = 13", {}, "[careers.job.options]: AssertionError: 13 is unlucky"),
        ("folder = '~nosuchuser/a'", {}, "begins with a home that is not known; write the whole"),
        (f"every_s = 1{'0' * 400}", {}, "is too large; write a smaller number"),
        ("pair = ['x']", {}, "pair of [careers.job.options]: ['x'] has 1 elements; write 2"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(tmp_path, toml, environ, said):
    with pytest.raises(ConfigurationError) as refused:
        taken(tmp_path, toml, **environ)
    assert said in str(refused.value)


def test_all_that_is_wrong_is_told_at_once(tmp_path):
    with pytest.raises(ConfigurationError) as refused:
        taken(tmp_path, "count = 'x'\nmode = 1\nodd = 2")
    assert len(refused.value.problems) == 4


def test_a_variable_of_another_career_is_warned_of_and_ignored(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        taken(tmp_path, "folder = '/a'", OTHER="1")
    assert "variable ignored variable=LEADERQ_OPTIONS_OTHER career=job" in caplog.text


def test_options_that_are_no_dataclass_are_refused(tmp_path):
    class Wrong(Job):
        Options = str

    class Loose(LeaderCareer):
        def execute(self, term: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="put @dataclass above it"):
        Wrong()._take(Settings())
    with pytest.raises(ConfigurationError, match="put @dataclass above it"):
        schema({"wrong": str})
    unknown = make_dataclass("Unknown", [("folder", "NotImported")])
    for use in (lambda: made_options(unknown, {}, "job"), lambda: schema({"job": unknown})):
        with pytest.raises(ConfigurationError, match=r"career 'job' are not known: NameError"):
            use()
    assert taken(tmp_path, "any = 1", Loose, MORE="x") == {"any": 1, "more": "x"}


def test_a_test_of_a_career_gives_them_as_a_mapping():
    career = Job()
    drive(career, options={"folder": "/b", "count": 3})
    assert career.options == Options(Path("/b"), 3)
    with pytest.raises(ConfigurationError, match="is not set"):
        drive(Job())
