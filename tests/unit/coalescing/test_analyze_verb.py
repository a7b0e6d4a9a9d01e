"""``leaderq analyze`` as its user meets it: figures, formats, errors."""

from __future__ import annotations

import json

import pytest

from leaderq.cli import main

LOG = "".join(
    f'10.0.0.{number % 3} - - [17/May/2015:10:05:{number:02} +0000] "GET /{number % 4} HTTP/1.1"'
    ' 200 5 "-" "x"\n'
    for number in range(40)
)


def run(capsys, *arguments):
    code = main(["analyze", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "access.log"
    path.write_text(LOG)
    return path


def test_the_figures_are_there_as_json(capsys, log):
    _, out, _ = run(
        capsys, log, "--key", "client", "--service-s", "1", "--service-s", "100", "--json"
    )
    said = json.loads(out)
    assert (said["requests"], said["keys"], said["minimum_distance"], said["duplication"]) == (
        40,
        3,
        3,
        "high",
    )
    assert [one["declined"] for one in said["savings"]] == [0, 34]
    assert said["savings"][1]["runs"] == 6


def test_what_would_harm_a_terminal_is_not_shown_as_it_is(capsys, tmp_path):
    path = tmp_path / "keys"
    path.write_text("\x1b[31m,1\n" * 3)
    out = run(capsys, path)[1]
    assert "\x1b" not in out
    assert "\\x1b[31m" in out


@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        (LOG, ["--key", "url"], "an access log has no field 'url'; its fields are client"),
        (LOG, ["--key", "path", "--service-s", "0"], "0.0 is not in the range"),
        (LOG, ["--key", "path", "--rate", "-1"], "-1.0 is not in the range"),
        ("k\tsoon\n", [], "no line of"),
        ("nonsense\n", ["--key", "path"], "no line of"),
        (None, ["--key", "path"], "there is no file"),
    ],
)
def test_wrong_usage_is_said_in_a_line_with_exit_code_2(capsys, tmp_path, content, arguments, said):
    path = tmp_path / "input"
    if content is not None:
        path.write_text(content)
    code, out, err = run(capsys, path, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err
