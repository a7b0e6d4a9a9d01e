from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest
from dashboard_values import NOW_MS, drain, installation, schedule, view
from hypothesis import given
from hypothesis import strategies as st

from leaderq.admin.careers import CareerState, Condition, condition_of
from leaderq.admin.snapshot import KEPT_FRAMES, PageSnapshot, after_failure, after_reading
from leaderq.dashboard.markup import tag
from leaderq.dashboard.plots import Stretch, line_plot, time_axis
from leaderq.dashboard.screens import PageScreen, ScreenKind, ScreenOptions, draw

SUBJECTS = {ScreenKind.CAREER: "billing", ScreenKind.QUEUE: "/mail"}
ALL = [PageScreen(kind, SUBJECTS.get(kind, "")) for kind in ScreenKind]


class Texts(HTMLParser):
    """The elements with their attributes, and the texts, as a browser reads them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.links = [str(had["href"]) for name, had in self.elements if name == "a"]

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attributes)))

    def handle_data(self, data: str) -> None:
        self.text += data


def seen(screen: PageScreen, snapshot: PageSnapshot | None = None, **options: bool) -> Texts:
    shown = installation() if snapshot is None else snapshot
    return Texts(draw(screen, shown, ScreenOptions(**options), NOW_MS))


@pytest.mark.parametrize(
    ("shown", "condition"),
    [
        ((view(),), Condition.LED),
        ((view(paused=True),), Condition.PAUSED),
        ((view(), drain(held_up="t-0@7: no")), Condition.HELD_UP),
        ((view(), drain(fresh=False)), Condition.SILENT),
        ((view(), drain(fresh=False, term=4)), Condition.LED),
        ((view(leads=False),), Condition.STOPPED),
        ((view(leads=False, candidates=("x",), members=("x",)),), Condition.LEADERLESS),
        ((None, None, (), "spoilt"), Condition.UNREADABLE),
        ((view(), None, (schedule(next_in_s=-30),)), Condition.LED),
        ((view(), None, (schedule(next_in_s=-90),)), Condition.OVERDUE),
    ],
)
def test_a_career_is_in_trouble_unless_it_is_led_or_was_stopped_in_order(
    shown: tuple[Any, ...], condition: Condition
) -> None:
    assert condition_of(CareerState("c", *shown), NOW_MS) is condition


def test_careers_in_trouble_come_first_with_the_reasons_and_the_filter_leaves_out_others() -> None:
    page = seen(PageScreen(ScreenKind.CAREERS))
    first, *_, last = page.links
    assert first.endswith("spoilt")
    assert last.endswith("reports")  # stopped in order: no trouble
    for said in ("term holds b'x'", "clicks-0@71: ConnectionRefused", "was due 10 m 0 s ago"):
        assert said in page.text
    only = seen(PageScreen(ScreenKind.CAREERS, only="team-*")).links
    assert ["team-" in link for link in only] == [True] * 6


def test_the_terms_of_a_career_are_told_with_their_ends_and_the_gaps_between() -> None:
    page = seen(PageScreen(ScreenKind.CAREER, "billing"))
    rows = page.text
    for said in ("career-failed: ValueError: no such customer", "unclean: killed", "200 ms"):
        assert said in rows
    kinds = [had["class"] for name, had in page.elements if name == "rect"]
    assert kinds == ["gap", "gap", "gap", "clean", "bad", "unclean", "clean", "leads"]
    assert "6.4 s, when it reported" in rows


def test_contents_of_items_are_hidden_unless_they_are_asked_for() -> None:
    screen = PageScreen(ScreenKind.QUEUE, "/mail")
    assert "a text" not in seen(screen).text
    assert "a text" in seen(screen, payloads=True).text


@pytest.mark.parametrize("screen", ALL)
def test_what_may_be_done_is_offered_only_if_allowed_and_ids_are_unique(screen: PageScreen) -> None:
    assert not [link for link in seen(screen).links if link.startswith("./act")]
    page = seen(screen, actions=True)
    has_actions = screen.kind not in (ScreenKind.CAREERS, ScreenKind.QUEUES)
    assert any(link.startswith("./act") for link in page.links) is has_actions
    ids = [str(had["id"]) for _, had in page.elements if "id" in had]
    assert ids
    assert len(ids) == len(set(ids))  # else the focus is not found again after a refresh
    assert not [one for one in ids if re.search(r"\s", one)]


@given(st.text(), st.text())
def test_any_text_and_attribute_is_read_as_it_was_or_with_marks_for_what_no_page_can_hold(
    text: str, value: str
) -> None:
    page = Texts(tag("p", text, title=value))
    ((name, had),) = page.elements
    assert (name, list(had)) == ("p", ["title"])
    plain = "".join(one for one in text if one.isprintable() or one in "\n\t")
    assert page.text.replace("�", "") == plain.replace("�", "")


def test_what_cannot_be_read_is_told_with_since_when_and_the_rest_is_kept() -> None:
    before = installation()
    first = after_failure(before, "ConnectionLost: no answer", NOW_MS - 9000)
    second = after_failure(first, "ConnectionLost: no answer", NOW_MS)
    text = seen(PageScreen(ScreenKind.CAREERS), second).text
    assert "(9 s): ConnectionLost: no answer; what is shown is of" in text
    assert "billing" in text
    back = after_reading(second, before.careers, before.queues, {}, NOW_MS + 1)
    assert (back.problem, back.failing_since_ms) == (None, None)


def test_readings_are_kept_for_plots_and_not_for_ever() -> None:
    snapshot, queues = PageSnapshot(), installation().queues
    for number in range(KEPT_FRAMES + 50):
        snapshot = after_reading(snapshot, (), queues, {}, NOW_MS + 1000 * number)
    assert len(snapshot.depths("/mail")) == KEPT_FRAMES
    assert len(after_reading(snapshot, (), queues, {}, NOW_MS + 10**8).depths("/mail")) == 1


def test_a_line_is_broken_where_nobody_looked_and_stays_within_its_plot() -> None:
    points = [(0, 5.0), (1000, 9.0), (60_000, 0.0), (61_000, 3.0)]
    plot = Texts(line_plot(points, 61_000, "depth"))
    lines = [str(had["points"]) for name, had in plot.elements if name == "polyline"]
    places = [tuple(map(float, pair.split(","))) for line in lines for pair in line.split()]
    assert len(lines) == 2
    assert all(0 <= x <= 1000 and 0 <= y <= 100 for x, y in places)
    assert "now 3, highest 9" in plot.text
    slow = Texts(line_plot([(0, 5.0), (60_000, 9.0), (120_000, 0.0)], 120_000, "depth", 60.0))
    assert [name for name, _ in slow.elements].count("polyline") == 1


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=11), st.floats(0, 100))
def test_terms_of_any_length_and_of_hosts_whose_clocks_differ_are_on_the_axis(
    moments: list[float], later: float
) -> None:
    stretches = [Stretch(began, ended, "1", "clean", "") for began, ended in pairwise(moments)]
    axis = Texts(time_axis(stretches, moments[-1] + later, "terms"))
    for name, had in axis.elements:
        if name == "rect":
            assert 0 <= float(str(had["x"])[:-1]) <= 100
            assert float(str(had["width"])[:-1]) >= 0.24
