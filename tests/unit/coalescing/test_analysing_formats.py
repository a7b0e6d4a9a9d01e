"""Lines as requests: a key and perhaps a time, the access log, and lines that may hold anything."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.coalescing.analysing import (
    LONGEST_LINE_BYTES,
    BadLine,
    RequestLines,
    access_log,
    key_and_time,
)
from leaderq.errors import ConfigurationError

LINE = (
    '203.0.113.9 - alice [17/May/2015:10:05:03 +0000] "GET /a?b=1 HTTP/1.1" 200 512 "http://x/"'
    ' "Mozilla \\"5\\" (X)"'
)
AT_S = 1431857103.0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("client", "203.0.113.9"),
        ("ident", "-"),
        ("user", "alice"),
        ("time", "17/May/2015:10:05:03 +0000"),
        ("request", "GET /a?b=1 HTTP/1.1"),
        ("method", "GET"),
        ("path", "/a?b=1"),
        ("protocol", "HTTP/1.1"),
        ("status", "200"),
        ("bytes", "512"),
        ("referer", "http://x/"),
        ("agent", 'Mozilla \\"5\\" (X)'),
    ],
)
def test_the_fields_of_an_access_log(key, value):
    assert access_log(key)(LINE) == (value, AT_S)


def test_the_common_form_has_neither_referer_nor_agent():
    common = LINE[: LINE.index(' "http')]
    assert access_log("path")(common) == ("/a?b=1", AT_S)
    assert access_log("agent")(common) == ("-", AT_S)


@pytest.mark.parametrize(
    "line", ["", "nonsense", LINE.replace("May", "Mai"), LINE.replace("GET /a?b=1 HTTP/1.1", "-")]
)
def test_what_is_no_line_of_an_access_log_is_a_bad_line(line):
    with pytest.raises(BadLine):
        access_log("path")(line)


def test_a_field_that_access_logs_lack_is_refused_with_those_they_have():
    with pytest.raises(ConfigurationError, match=r"'url'; its fields are client, .*path"):
        access_log("url")


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        ("/a b", ("/a b", None)),
        ("/a b\t5", ("/a b", 5.0)),
        ("a\tb\t5.5", ("a\tb", 5.5)),
        ("k\t2015-05-17 10:05:03", ("k", AT_S)),
        ("k\t2015-05-17T10:05:03Z", ("k", AT_S)),
        ("k\t2015-05-17T12:05:03+02:00", ("k", AT_S)),
        ("\t1", ("", 1.0)),
    ],
)
def test_a_key_and_behind_a_tab_a_time(line, request_):
    assert key_and_time(line) == request_


@pytest.mark.parametrize("time", ["", "soon", "0000-01-01", "1,5"])
def test_what_is_no_time_is_a_bad_line(time):
    with pytest.raises(BadLine, match="not a time"):
        key_and_time(f"k\t{time}")


def lines_of(data: bytes, parse=key_and_time):
    lines = RequestLines(io.BytesIO(data), parse)
    return lines, list(lines)


def test_lines_that_cannot_be_used_are_counted_and_the_first_are_shown():
    lines, requests = lines_of(
        b"a\n\xff\n\n" + b"x" * (LONGEST_LINE_BYTES + 5) + b"\nb\r\n" + b"\xff\n" * 5
    )
    assert [key for key, _ in requests] == ["a", "b"]
    assert (lines.lines, lines.requests, lines.undecodable, lines.unusable) == (9, 2, 6, 1)
    assert lines.complaints == [
        "line 2: not UTF-8 at byte 1",
        f"line 4: longer than {LONGEST_LINE_BYTES} bytes",
        "line 6: not UTF-8 at byte 1",
    ]


def test_a_byte_order_mark_is_no_part_of_the_first_key():
    assert lines_of("\ufeffkey\nx".encode())[1] == [("key", None), ("x", None)]


def test_an_empty_file_has_no_requests():
    lines, requests = lines_of(b"\n\n")
    assert (lines.lines, requests) == (0, [])


@given(st.binary(max_size=400), st.sampled_from([access_log("path"), key_and_time]))
def test_any_bytes_are_read_to_their_end(data, parse):
    lines, requests = lines_of(data, parse)
    assert lines.requests == len(requests)
    assert lines.requests + lines.undecodable + lines.unusable == lines.lines
