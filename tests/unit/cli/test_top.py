from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from dashboard_values import NOW, NOW_MS, drain, term, view
from textual.pilot import Pilot
from textual.widgets import DataTable, Static
from textual.widgets._footer import FooterKey

from leaderq.admin.actions import Action, Deed
from leaderq.admin.careers import CareerState, career_row, condition_of
from leaderq.admin.queue_states import Listing, QueueState, queue_row
from leaderq.admin.snapshot import PageSnapshot
from leaderq.cli import main, top_rows
from leaderq.cli.top_screen import CareerScreen, ConfirmScreen, TopApp
from leaderq.errors import RequestRefused
from leaderq.kafka.consuming.report import PartitionLag

ASKED = ({"at": NOW - 5, "by": "anna@desk", "what": "pause", "why": "bank closed"},)
FAILED = term(5, 100, 50, reason="failed", error="no disk")
CAREERS = (
    CareerState("billing", view(), drain()),
    CareerState("lost", view("lost", leads=False, reason="failed", history=(FAILED,))),
    CareerState("idle", view("idle", paused=True, asked=ASKED)),
    CareerState("spoilt", None, problem="the znode holds nonsense"),
)
QUEUES = (
    QueueState("/q/mail", True, 12, 1, 0, 2, listing=Listing(NOW_MS, "dyno", NOW_MS - 90_000)),
    QueueState("/q/orders", False, 1_000_000, None, 3, 1, is_paused=True, too_many=True),
)
SNAPSHOT = PageSnapshot(1, NOW_MS, CAREERS, QUEUES)


def names(wanted: str = "", sort: top_rows.Sort = top_rows.Sort.TROUBLE) -> list[str]:
    return [one.career for _, one in top_rows.chosen(SNAPSHOT, wanted, sort)]


def row(state: CareerState) -> dict[str, Any]:
    return career_row(condition_of(state, NOW_MS), state, NOW_MS)


def test_careers_in_trouble_come_first_and_are_filtered_by_name_pattern_and_condition() -> None:
    assert names() == ["spoilt", "lost", "idle", "billing"]
    assert names(sort=top_rows.Sort.NAME) == ["billing", "idle", "lost", "spoilt"]
    assert names(sort=top_rows.Sort.LAG)[0] == "billing"
    assert names(sort=top_rows.Sort.NEWEST)[-1] == "spoilt"
    assert names("ill") == ["billing"]
    assert names("*i*l*") == ["spoilt", "idle", "billing"]
    assert names("Nobody Leads") == ["lost"]


def test_a_row_says_who_leads_how_far_behind_and_why_not() -> None:
    led, lost, _, spoilt = map(row, CAREERS)
    assert (led["Leader"], led["Term"], led["Lag"], led["Rate"]) == ("host-c", 5, "1200", "310/s")
    assert (led["Margin"], led["Stage"], led["Since"]) == ("6.4 s", "execution", "1 h 6 m")
    assert (lost["Condition"], lost["Leader"], lost["Lag"]) == ("nobody leads", None, None)
    assert lost["Condition"].tone == "bad"
    assert "no disk" in lost["Why"]
    assert (spoilt["Condition"], spoilt["Why"]) == ("unreadable", "the znode holds nonsense")


@pytest.mark.parametrize(
    ("reported", "rate", "shown"),
    [
        ({"catch_up_s": 7265.0}, "310/s", "2 h 1 m"),
        ({"rate_per_s": 5.25, "catch_up_s": None}, "5.2/s", "not at this rate"),
        ({"rate_per_s": None}, None, None),
        ({"rate_per_s": 9000.0, "catch_up_s": None}, "9000/s", "keeps up"),
        ({"partitions": {"t-0": PartitionLag(7, 14, 7, 7)}}, "310/s", "waits for a transaction"),
        ({"held_up": "t-9@5: OSError: away"}, "310/s", "held up"),
    ],
)
def test_when_a_leader_will_have_caught_up_is_said_or_why_it_will_not(
    reported: dict[str, Any], rate: str | None, shown: str | None
) -> None:
    told = row(CareerState("c", view(), drain(**reported)))
    assert (told["Rate"], told["Catch-up"]) == (rate, shown)


def test_queues_with_dead_letters_come_first_with_depth_and_age() -> None:
    rows = [queue_row(one, NOW_MS) for one in top_rows.queues_in_order(QUEUES)]
    assert top_rows.fitting(top_rows.QUEUE_COLUMNS, rows, 300)[1] == [
        ["/q/orders", "1,000,000", "-", "3", "1", "-", "paused; too many to be listed"],
        ["/q/mail", "12", "1 m 30 s", "0", "2", "dyno", "-"],
    ]


def test_a_narrow_screen_shows_what_matters_most_and_cuts_long_names() -> None:
    wide, _ = top_rows.fitting(top_rows.CAREER_COLUMNS, [row(one) for one in CAREERS], 300)
    assert wide == [*top_rows.CAREER_COLUMNS]
    name = "<script>\x1b[2J" + "x" * 200
    long = [row(CareerState(name, view(name, leader="y" * 50), drain(10**9)))]
    names, ((career, *_, lag),) = top_rows.fitting(top_rows.CAREER_COLUMNS, long, 58)
    assert names == ["Career", "Condition", "Leader", "Term", "Lag"]
    assert (career, lag) == ("<script>\\x1…", "1000000000")


def test_a_summary_says_that_a_reading_failed_and_events_are_told_the_newest_first() -> None:
    assert "4 careers, 2 in trouble, 1 to look at, 1 shown" in top_rows.summary(SNAPSHOT, 1)
    failed = top_rows.summary(PageSnapshot(2, NOW_MS, CAREERS, problem="away"), 4)
    assert "not read since: away" in failed
    assert [one[9:] for one in top_rows.last_events(SNAPSHOT, 2)] == [
        "idle: anna@desk asked for pause: bank closed",
        "lost: term 5 ended, failed: no disk",
    ]


def test_without_an_input_it_says_that_it_needs_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)  # as after <&-
    assert main(["top"]) == 2
    assert "top needs a terminal" in capsys.readouterr().err


def test_one_career_is_shown_in_full() -> None:
    text = "\n".join(top_rows.career_lines(CAREERS[0], NOW_MS))
    for said in (
        "Leader: host-c on host-c.example",
        "  turn 2, candidate host-b, role next, host host-b.example, process 17",
        *("Records in hand: 500", "term 5, leader host-c", "end leads now"),
    ):
        assert said in text
    paused = "\n".join(top_rows.career_lines(CAREERS[2], NOW_MS))
    assert "who anna@desk, asked for pause, because bank closed" in paused


def on_screen(
    use: Callable[[TopApp, Pilot[None]], Awaitable[None]],
    snapshot: PageSnapshot = SNAPSHOT,
    size: tuple[int, int] = (60, 24),
) -> list[tuple[Action, str]]:
    """Use the screen once it has read; what it was told to do."""
    done: list[tuple[Action, str]] = []

    def act(action: Action, why: str) -> str:
        done.append((action, why))
        if action.subject == "lost":
            raise RequestRefused("nobody leads")
        return "done"

    async def run() -> None:
        app = TopApp(lambda _before: snapshot, act, every_s=3600)
        async with app.run_test(size=size) as pilot:
            await app.workers.wait_for_complete()
            await pilot.pause()
            await use(app, pilot)
            await app.workers.wait_for_complete()

    asyncio.run(run())
    return done


def drawn(app: TopApp) -> list[str]:
    table = app.screen_stack[0].query_one("#careers", DataTable)
    return [str(row.key.value) for row in table.ordered_rows]


def test_the_screen_fits_sixty_columns_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    names = [f"team-{n:03}" + "x" * 30 for n in range(200)]
    many = tuple(CareerState(name, view(name), drain(10**6)) for name in names)

    async def use(app: TopApp, pilot: Pilot[None]) -> None:
        assert drawn(app) == names
        table = app.query_one("#careers", DataTable)
        assert table.virtual_size.width <= 60
        assert table.size.height >= 12
        *_, key = [one for one in app.query(FooterKey) if one.description]
        assert (key.description, key.region.right <= 60) == ("Quit", True)
        await pilot.press("ctrl+end")
        app.draw()
        assert app.selected == names[199]

    on_screen(use, PageSnapshot(1, NOW_MS, many, QUEUES))


def test_sorting_filtering_and_one_career_in_full() -> None:
    async def use(app: TopApp, pilot: Pilot[None]) -> None:
        assert drawn(app) == ["spoilt", "lost", "idle", "billing"]
        await pilot.press("s")
        assert drawn(app) == ["billing", "idle", "lost", "spoilt"]
        await pilot.press("slash", *"bill", "enter")
        assert drawn(app) == ["billing"]
        await pilot.press("enter")
        assert isinstance(app.screen, CareerScreen)
        assert "Leader: host-c on host-c.example" in str(
            app.screen.query_one("#lines", Static).render()
        )
        await pilot.press("escape")
        await pilot.press("escape")
        assert len(drawn(app)) == 4

    assert on_screen(use) == []


def test_a_deed_is_asked_for_with_a_reason_a_refusal_is_shown_and_escape_does_nothing() -> None:
    async def use(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("down", "d", "enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        (told,) = app._notifications
        assert (told.message, told.severity) == ("nobody leads", "error")
        await pilot.press("ctrl+end", "p")
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("escape")
        assert not isinstance(app.screen, ConfirmScreen)
        await pilot.press("p", *"closed", "enter")
        await pilot.press("t", "enter", *"calm", "enter")
        await pilot.press("d", "enter", "r", "enter")

    assert on_screen(use) == [
        (Action(Deed.STEP_DOWN, "lost"), ""),
        (Action(Deed.PAUSE, "billing"), "closed"),
        (Action(Deed.TRANSFER, "billing", "host-b"), "calm"),
        (Action(Deed.STEP_DOWN, "billing"), ""),
        (Action(Deed.RESUME, "billing"), ""),
    ]
