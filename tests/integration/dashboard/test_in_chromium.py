"""The page in a browser: at both widths, in light and dark, by keyboard alone, and what axe finds.

Needs Chromium (Debian's package) and two packages of PyPI; ``make page`` fetches the latter.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from itertools import product
from typing import Any

import pytest

pytest.importorskip("starlette", reason="pip install 'leaderq[dashboard]'")
playwright = pytest.importorskip("playwright.sync_api", reason="make page")

from dashboard_server import TOKENS, Served, served  # noqa: E402
from dashboard_values import drain, installation, schedule, view  # noqa: E402

from leaderq.admin.careers import CareerState  # noqa: E402
from leaderq.admin.queue_states import QueueState  # noqa: E402
from leaderq.admin.snapshot import PageSnapshot  # noqa: E402
from leaderq.election import Member  # noqa: E402

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium: make page says more"
)
SCREENS = ("/", "/career?of=billing", "/queues", "/queue?of=/mail", "/schedules")
FORMS = ("/sign-in", "/act?do=pause&of=billing", "/career?of=nobody")
LONG_NAME = ("<script>alert(1)<b>" + "w" * 200)[:200]
LONG = (f"/career?of={LONG_NAME}", f"/queue?of=/{LONG_NAME}", f"/act?do=pause&of={LONG_NAME}")
PATIENT_MS = 60_000


def with_long_names(snapshot: PageSnapshot) -> PageSnapshot:
    terms = tuple(replace(one, candidate=LONG_NAME, host=LONG_NAME) for one in view().history)
    member = Member(LONG_NAME, LONG_NAME, 1)
    led = view(LONG_NAME, leader=LONG_NAME, history=terms, members=(member, member))
    state = CareerState(LONG_NAME, led, drain(10**15), (schedule(LONG_NAME),), "x" * 300)
    queue = QueueState(f"/{LONG_NAME}", False, 10**9, 1, 10**6, 2)
    return replace(snapshot, careers=(*snapshot.careers, state), queues=(*snapshot.queues, queue))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page() -> Iterator[Served]:
    with served(actions=True) as one:
        yield one


def opened(chromium: Any, page: Served, path: str = "/", **shown: Any) -> Any:
    """A tab of its own; an error that its console tells fails the test at once."""
    tab = chromium.new_context(base_url=page.url, **shown).new_page()
    tab.set_default_timeout(PATIENT_MS)
    tab.said = []
    tab.on("console", lambda one: tab.said.append(one.text) if one.type == "error" else None)
    tab.on("pageerror", lambda one: tab.said.append(str(one)))
    tab.goto(path)
    return tab


def signed_in(tab: Any) -> None:
    tab.goto("/sign-in")
    tab.wait_for_selector("#token:focus")
    tab.keyboard.type(TOKENS["alice"])
    tab.keyboard.press("Enter")
    tab.wait_for_selector("text=Sign out alice")


@pytest.mark.parametrize(
    ("width", "scheme"), [*product((1280, 390), ("light", "dark"))], ids=lambda one: str(one)
)
def test_each_screen_fits_its_width_and_axe_finds_nothing(chromium, page, width, scheme):
    package = pytest.importorskip("axe_playwright_python", reason="make page")
    axe = resources.files(package).joinpath("axe.min.js").read_text()
    shown = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    page.snapshot = with_long_names(page.snapshot)
    tab = opened(chromium, page, **shown)
    signed_in(tab)
    tab.on("dialog", lambda one: tab.said.append(f"dialog {one.message}"))
    for path in (*SCREENS, *FORMS, *LONG):  # with scripts in items and errors, which must not run
        tab.goto(path)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, path
        ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") is (scheme == "light")
        assert tab.is_visible("#hold") is not path.startswith(("/act", "/sign-in"))
        tab.evaluate(axe)
        found = tab.evaluate("axe.run().then((all) => all.violations)")
        told = [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]
        assert told == [], path
    tab.goto("/")
    tab.wait_for_function("document.getElementById('hold').hidden === false")
    assert [one for one in tab.said if "404" not in one] == []


def read_again(tab: Any, page: Served) -> None:
    """Return when what was read has been sent twice, while the browser goes on."""
    seen = page.readings
    while page.readings < seen + 3:
        tab.evaluate("1")


def tab_to(tab: Any, wanted: str) -> None:
    """Press Tab until the element that a selector names has the focus, which is seen."""
    for _ in range(80):
        tab.keyboard.press("Tab")
        if tab.evaluate(f"document.activeElement.matches({wanted!r})"):
            outline = tab.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none"
            return
    raise AssertionError(f"the keyboard does not reach {wanted}")


def test_everything_is_reached_and_done_by_keyboard_alone(chromium, page):
    tab = opened(chromium, page)
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    tab.keyboard.press("Enter")
    tab_to(tab, "#only")
    tab.keyboard.type("bill*")
    tab.keyboard.press("Enter")
    tab.wait_for_url(f"{page.url}/?only=bill*")
    tab.goto("/")
    tab_to(tab, 'a[href="./career?of=billing"]')
    tab.keyboard.press("Enter")
    tab.wait_for_url(f"{page.url}/career?of=billing")
    tab_to(tab, 'a[href^="./act?do=pause"]')
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#token:focus")
    tab.keyboard.type(TOKENS["alice"])
    tab.keyboard.press("Enter")
    tab.wait_for_selector("text=You want to pause billing")
    tab.wait_for_selector("#why:focus")
    tab.keyboard.type("a deploy")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("text=Really pause billing")
    assert page.done == []
    tab_to(tab, "main form button")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("text=done for alice")
    assert [one[1:] for one in page.done] == [("alice", "a deploy")]


def test_a_refresh_leaves_the_focus_and_what_is_held_still(chromium, page):
    tab = opened(chromium, page)
    tab_to(tab, 'a[href="./career?of=team-003"]')
    page.snapshot = installation(9)
    tab.wait_for_selector("text=team-008")
    assert tab.evaluate("document.activeElement.getAttribute('href')") == "./career?of=team-003"
    tab.click("#hold")
    page.snapshot = installation(11)
    read_again(tab, page)
    assert tab.query_selector("text=team-010") is None
    tab.click("#hold")
    tab.wait_for_selector("text=team-010")
    assert tab.said == []
