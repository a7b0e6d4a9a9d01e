"""Lines as requests: the three formats, and lines that may hold anything."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.coalescing.analysing.formats import BadLine, Combined, Delimited, JsonLines, guessed, moment
from leaderq.coalescing.analysing.reading import LONGEST_LINE_BYTES, RequestLines
from leaderq.errors import ConfigurationError

LINE = '203.0.113.9 - alice [17/May/2015:10:05:03 +0000] "GET /a?b=1 HTTP/1.1" 200 512 "http://x/" "Mozilla \\"5\\" (X)"'
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
    assert Combined(key).request(LINE) == (value, AT_S)


def test_the_common_form_has_neither_referer_nor_agent():
    common = LINE[: LINE.index(' "http')]
    assert Combined("path").request(common) == ("/a?b=1", AT_S)
    assert Combined("agent").request(common) == ("-", AT_S)


@pytest.mark.parametrize("line", ["", "nonsense", LINE.replace("May", "Mai"), LINE.replace("GET /a?b=1 HTTP/1.1", "-")])
def test_what_is_no_line_of_an_access_log_is_a_bad_line(line):
    with pytest.raises(BadLine):
        Combined("path").request(line)


def test_a_field_that_access_logs_lack_is_refused_with_those_they_have():
    with pytest.raises(ConfigurationError, match=r"'url'; its fields are client, .*path"):
        Combined("url")


def test_json_fields_are_named_with_dots():
    assert JsonLines("user.id", "at").request('{"user": {"id": 7}, "at": "2015-05-17T10:05:03Z"}') == ("7", AT_S)
    assert JsonLines("a.b").request('{"a.b": "x", "a": {"b": "y"}}') == ("x", None)
    assert JsonLines("k").request('{"k": {"b": 1, "a": 2}}') == JsonLines("k").request('{"k": {"a": 2, "b": 1}}')


@pytest.mark.parametrize(
    "line", ["", "{", "[1]", "null", '{"j": 1}', '{"k": 1, "at": true}', '{"k": 1, "at": "soon"}', "[" * 100_000]
)
def test_what_is_no_object_with_these_fields_is_a_bad_line(line):
    with pytest.raises(BadLine):
        JsonLines("k", "at").request(line)


def test_columns_by_name_and_by_number():
    by_name = Delimited("page", "at")
    assert by_name.request("at,page") is None
    assert by_name.request('0,"/a,b"') == ("/a,b", 0.0)
    assert Delimited("2").request("x\t/a b") == ("/a b", None)
    assert Delimited("2").request("x   /a b") == ("/a", None)
    with_heading = Delimited("2", has_heading=True)
    assert with_heading.request("a;b") is None
    assert with_heading.request("1;2") == ("2", None)
    assert Delimited("1", delimiter="|").request("a,b|c") == ("a,b", None)


def test_a_column_that_is_not_there_is_refused_or_a_bad_line():
    with pytest.raises(ConfigurationError, match=r"no column 'page'.*'at', 'url'"):
        Delimited("page").request("at,url")
    with pytest.raises(ConfigurationError, match="counted from 1"):
        Delimited("0")
    with pytest.raises(BadLine, match="2 columns, and column 3"):
        Delimited("3").request("a,b")


def test_the_format_is_guessed_from_a_line():
    assert [guessed(line) for line in (LINE, ' {"a": 1}', "a,b", "a")] == ["combined", "json", "delimited", "delimited"]


@pytest.mark.parametrize(
    ("value", "at_s"),
    [(5, 5.0), ("5.5", 5.5), (1431857103000, AT_S), ("2015-05-17 10:05:03", AT_S), ("2015-05-17T12:05:03+02:00", AT_S)],
)
def test_times_are_numbers_or_iso_8601(value, at_s):
    assert moment(value) == at_s


@pytest.mark.parametrize("value", ["", "nan", "inf", "soon", None, True, [], {}, 10**400, "0000-01-01"])
def test_what_is_no_time_is_a_bad_line(value):
    with pytest.raises(BadLine):
        moment(value)


def lines_of(data: bytes, form=None):
    lines = RequestLines(io.BytesIO(data), lambda _: form or Delimited("1"))
    return lines, list(lines.prepare())


def test_lines_that_cannot_be_used_are_counted_and_the_first_are_shown():
    lines, requests = lines_of(b"a\n\xff\n\n" + b"x" * (LONGEST_LINE_BYTES + 5) + b"\nb\r\n" + b"\xff\n" * 5)
    assert [key for key, _ in requests] == ["a", "b"]
    assert (lines.lines, lines.requests, lines.undecodable, lines.unusable) == (9, 2, 6, 1)
    assert lines.complaints == [
        "line 2: no UTF-8 at byte 1",
        f"line 4: longer than {LONGEST_LINE_BYTES} bytes",
        "line 6: no UTF-8 at byte 1",
    ]


def test_a_byte_order_mark_is_no_part_of_the_first_field():
    assert lines_of("\ufeffkey\nx".encode(), Delimited("key"))[1] == [("x", None)]


def test_nothing_is_asked_of_the_format_of_an_empty_file():
    lines, requests = lines_of(b"\n\n")
    assert (lines.format, requests) == (None, [])


@given(st.binary(max_size=400), st.sampled_from([Combined("path"), JsonLines("k"), Delimited("2", "1")]))
def test_any_bytes_are_read_to_their_end(data, form):
    lines, requests = lines_of(data, form)
    assert lines.requests == len(requests)
    assert lines.requests + lines.undecodable + lines.unusable == lines.lines
