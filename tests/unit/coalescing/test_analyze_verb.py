"""``leaderq analyze`` as its user meets it: figures, formats, errors."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys

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


def test_an_access_log_is_told_by_its_lines(capsys, log):
    code, out, err = run(capsys, log, "--key", "path", "--service-s", "10")
    assert (code, err) == (0, "")
    assert re.search(r"^duplication +high\b", out, re.MULTILINE)
    assert re.search(r"^minimum repeat distance +4$", out, re.MULTILINE)
    assert "ONE RUN TAKES" in out


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


def test_standard_input_and_packed_files_are_read(capsys, log, tmp_path, monkeypatch):
    packed = tmp_path / "access.log.gz"
    packed.write_bytes(gzip.compress(LOG.encode()))
    plain = run(capsys, log, "--key", "path")
    assert run(capsys, packed, "--key", "path") == plain
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LOG.encode())))
    assert run(capsys, "-", "--key", "path") == plain


def test_lines_of_a_key_with_and_without_a_time(capsys, tmp_path):
    path = tmp_path / "events"
    path.write_text("".join(f"user {number % 2}\t{number}\n" for number in range(10)))
    code, out, err = run(capsys, path, "--service-s", "50")
    assert (code, err) == (0, "")
    assert "60.0%" in out
    path.write_text("a\na\nb\n")
    code, out, err = run(capsys, path)
    assert code == 0
    assert "nothing says when requests come; add a time after a tab, or give --rate N" in err
    assert re.search(r"^keys +2\b", run(capsys, path, "--rate", "5")[1], re.MULTILINE)


def test_lines_that_cannot_be_used_are_counted_and_shown(capsys, tmp_path):
    path = tmp_path / "access.log"
    path.write_bytes(LOG.encode() + b"\xff\xfe\nnonsense\n")
    code, out, err = run(capsys, path, "--key", "path")
    assert code == 0
    assert re.search(r"^requests +40\b", out, re.MULTILINE)
    assert "2 of 42 lines left out (1 undecodable, 1 unusable):" in err
    assert "line 42: not a line of an access log" in err


def test_an_empty_file_has_no_requests(capsys, tmp_path):
    path = tmp_path / "empty"
    path.touch()
    code, out, err = run(capsys, path, "--key", "path")
    assert code == 0
    assert re.search(r"^duplication +none\b", out, re.MULTILINE)
    assert "no requests in" in err


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


def test_what_is_no_file_or_no_packed_file_is_said_so(capsys, tmp_path):
    assert "cannot be read: Is a directory" in run(capsys, tmp_path, "--key", "path")[2]
    broken = tmp_path / "a.gz"
    broken.write_bytes(b"no gzip")
    assert "cannot be read" in run(capsys, broken, "--key", "path")[2]
    broken.write_bytes(gzip.compress(LOG.encode())[:-20])
    assert "cannot be read" in run(capsys, broken, "--key", "path")[2]
