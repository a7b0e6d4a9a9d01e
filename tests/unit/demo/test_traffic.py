"""Access logs made up: the same every time, and as skewed as the real one they were measured on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from leaderq.cli.demo.ad_billing.clicks import Click, parse
from leaderq.cli.demo.ad_billing.feed import numbered
from leaderq.cli.demo.ad_billing.prices import charge
from leaderq.cli.demo.ad_billing.traffic import client_of, generated, read
from leaderq.cli.demo.stage import choose
from leaderq.errors import ConfigurationError

LINE = (
    '83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /a.png?x HTTP/1.1" 200 203023 "-"'
    ' "Mozilla/5.0 (X; Y) \\"Z\\""'
)


def test_the_same_seed_gives_the_same_lines_and_another_seed_others() -> None:
    first = list(generated(300, seed=7))
    assert first == list(generated(300, seed=7))
    assert first != list(generated(300, seed=8))
    assert next(generated(1)).startswith("10.")


def test_fewer_lines_are_the_beginning_of_more() -> None:
    assert list(generated(50)) == list(generated(200))[:50]


def test_the_skew_is_that_of_the_real_log() -> None:
    lines = list(generated(8000))
    clicks = [click for line in lines if (click := parse(line))]
    assert len(clicks) == 8000
    busiest = Counter(click.client for click in clicks).most_common(1)[0][1]
    hottest = Counter(click.resource for click in clicks).most_common(1)[0][1]
    assert 0.040 < busiest / 8000 < 0.060  # the real log: 4.8 %
    assert 0.070 < hottest / 8000 < 0.090  # the real log: 7.8 %


def test_a_line_is_read_as_client_resource_status_and_size() -> None:
    assert parse(LINE) == Click("83.149.9.216", "/a.png?x", 200, 203023)
    assert client_of(LINE) == "83.149.9.216"


def test_a_size_of_a_dash_is_no_bytes_and_an_odd_request_no_resource() -> None:
    assert parse('h - - [t] "-" 304 -') == Click("h", "-", 304, 0)


def test_what_is_no_line_of_an_access_log_is_no_click() -> None:
    assert parse("") is None
    assert parse("something else") is None


def test_prices_follow_kind_and_size_and_failures_are_free() -> None:
    assert charge(Click("c", "/articles/", 200, 0)) == 200
    assert charge(Click("c", "/articles/", 200, 1)) == 201
    assert charge(Click("c", "/style.css?v=2", 200, 2048)) == 22
    assert charge(Click("c", "/blog?flav=rss20", 200, 0)) == 100
    assert charge(Click("c", "/gone", 404, 5000)) == 0


def test_records_are_keyed_by_client_and_counted_on() -> None:
    records = list(numbered([LINE, LINE], start=5))
    assert [key for key, _, _ in records] == [b"83.149.9.216"] * 2
    assert [headers for _, _, headers in records] == [[("number", b"5")], [("number", b"6")]]


def test_a_file_is_repeated_until_there_are_enough_lines(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a\n\nb\n")
    assert list(read(tmp_path / "log", 5)) == ["a", "b", "a", "b", "a"]
    assert list(read(tmp_path / "log")) == ["a", "b"]


def test_input_is_the_file_given_else_made_up_wherever_the_demo_is_started(tmp_path: Path) -> None:
    assert "made up" in choose(None, 10)[0]
    (tmp_path / "own").write_text("own\n")
    assert list(choose(tmp_path / "own", 1)[1]) == ["own"]


@pytest.mark.parametrize(
    "make", [lambda path: None, lambda path: path.write_text("\n"), lambda path: path.mkdir()]
)
def test_an_input_that_cannot_be_used_is_named(tmp_path: Path, make: object) -> None:
    path = tmp_path / "input"
    make(path)  # type: ignore[operator]
    with pytest.raises(ConfigurationError, match=str(path)):
        choose(path, 10)
