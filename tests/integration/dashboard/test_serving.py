from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from itertools import islice
from typing import Any
from urllib.parse import urljoin

import pytest

pytest.importorskip("starlette", reason="pip install 'leaderq[dashboard]'")
httpx = pytest.importorskip("httpx", reason="pip install '.[dev]'")

from dashboard_server import TOKENS, Served, served  # noqa: E402
from dashboard_values import installation  # noqa: E402

from leaderq.cli import main  # noqa: E402
from leaderq.dashboard import serving  # noqa: E402
from leaderq.dashboard.access import read_tokens  # noqa: E402
from leaderq.dashboard.screens import draw  # noqa: E402
from leaderq.queues.wire.payload import Note  # noqa: E402
from leaderq.queues.wire.payload import encode as framed  # noqa: E402
from leaderq.testing import eventually  # noqa: E402

PAUSE = "/act?do=pause&of=billing&with="
SAFE = {"x-content-type-options": "nosniff", "x-frame-options": "DENY"}
SAFE |= {"referrer-policy": "same-origin", "cache-control": "no-store"}
SCREENS = ("/", "/career?of=billing", "/queues", "/queue?of=/mail", "/schedules")


@pytest.fixture
def page() -> Iterator[Served]:
    with served(actions=True) as one:
        yield one


@pytest.fixture
def browser(page) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=page.url, timeout=60) as client:
        yield client


def sign_in(browser: httpx.Client, token: str = TOKENS["alice"]) -> httpx.Response:
    return browser.post("/sign-in?next=/queues", data={"token": token})


def led_to(answer: httpx.Response) -> str:
    """The path, and the query, to which a redirection leads from where it was answered."""
    return urljoin(answer.url.raw_path.decode(), answer.headers["location"])


def hidden(answer: httpx.Response, name: str) -> str:
    found = re.search(rf'name="{name}" value="([0-9a-f]+)"', answer.text)
    assert found, answer.text
    return found[1]


def test_every_answer_has_safe_headers_and_loads_nothing_from_elsewhere(browser):
    others = ("/page.css", "/page.js", "/icon.svg", "/sign-in", "/absent", PAUSE)
    for path in (*SCREENS, *others):
        answer = browser.get(path)
        assert answer.headers.items() >= SAFE.items()
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "server" not in answer.headers
        if path in SCREENS:
            loaded = re.findall(r'(?:src|href)="([^"]*)"', answer.text)
            assert loaded
            assert all(one.startswith(("./", "#")) for one in loaded)
            assert re.findall(r"<script[^>]*>[^<]|style=", answer.text) == []
    for path in ("/career?of=nobody", "/queue?of=/leaderq", "/absent"):
        assert browser.get(path).status_code == 404


def test_nothing_leads_out_of_the_prefix_below_which_a_proxy_serves_the_page(browser):
    outside = browser.get(PAUSE)
    pages = [browser.get("/sign-in"), outside, sign_in(browser)]
    pages += map(browser.get, (*SCREENS, PAUSE))
    found = hidden(pages[-1], "secret")
    pages.append(browser.post(PAUSE, data={"secret": found, "why": "x"}))
    asked = {"secret": found, "word": hidden(pages[-1], "word")}
    pages += [browser.post("/confirm", data=asked), browser.post("/sign-out", data=asked)]
    for one in pages:
        led = re.findall(r' (?:src|href|action|data-stream)="([^"]*)"', one.text)
        led += [one.headers["location"]] if one.is_redirect else []
        here = f"https://proxy.example/leaderq{one.url.raw_path.decode()}"
        there = [urljoin(here, unescape(address)) for address in led if address]
        assert there
        assert [to for to in there if not to.startswith("https://proxy.example/leaderq/")] == []


def test_another_host_name_is_refused(page, browser):
    for host in ("evil.example", "127.0.0.1.evil.example"):
        assert browser.get("/", headers={"Host": host}).status_code == 421
    assert page.readings == 0


def streamed(browser: httpx.Client, address: str, wanted: int) -> list[str]:
    found = [""]
    with browser.stream("GET", address) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-accel-buffering"] == "no"
        for line in answer.iter_lines():
            found[-1] += line.removeprefix("data: ")
            found += [] if line else [""]
            if len(found) > wanted:
                break
    return found[:wanted]


def test_a_stream_sends_the_screen_after_each_reading_and_tells_of_failures():
    with served(every_s=0.05) as page, httpx.Client(base_url=page.url, timeout=60) as browser:
        events = streamed(browser, "/events?screen=/career&of=billing&seen=0", 3)
        assert [one.count('id="terms"') for one in events] == [1, 1, 1]
        page.fails = True
        assert streamed(browser, f"/events?screen=/&seen={'0' * 5000}", 1)
        failing = streamed(browser, "/events?screen=/&seen=0", 3)[-1]
        assert "ConnectionLost: no server answers" in failing
        assert "billing" in failing
        page.fails = False
        eventually(lambda: "cannot be read" not in browser.get("/").text)


def test_fifty_browsers_at_once_cost_as_many_readings_and_drawings_as_one(monkeypatch):
    drawn: list[Any] = []
    monkeypatch.setattr(serving, "draw", lambda *given: drawn.append(given) or draw(*given))

    with (
        served(every_s=0.5) as page,
        httpx.Client(base_url=page.url, timeout=60) as browser,
        ThreadPoolExecutor(50) as pool,
    ):
        page.snapshot = installation(200)
        looks = [pool.submit(streamed, browser, "/events?screen=/&seen=0", 4) for _ in range(50)]
        assert [len(look.result()) for look in looks] == [4] * 50
        assert len(drawn) <= page.readings < 50


def test_a_browser_that_reads_nothing_of_its_stream_is_not_read_or_drawn_for():
    """What was sent fills the buffers of the connection, and no more is made until it is read."""
    with served(every_s=0.01) as page, httpx.Client(base_url=page.url, timeout=60) as browser:
        page.snapshot = installation(200)
        asked: list[Any] = []
        after = page.refresher.after
        page.refresher.after = lambda *given: asked.append(given) or after(*given)
        port = int(page.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(b"GET /events?screen=/&seen=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            eventually(lambda: asked)
            streamed(browser, "/events?screen=/queues&seen=0", 200)
            assert 200 <= len(asked) < 300


def test_who_waits_for_a_screen_when_the_page_is_stopped_is_told(page, browser):
    page.refresher.stop()
    assert browser.get("/").status_code == 503


def test_a_browser_that_leaves_amid_a_form_is_no_error():
    async def leave() -> Any:
        return {"type": "http.disconnect"}

    async def drop(_message: Any) -> None:
        """Nobody is there."""

    asked = {"type": "http", "method": "POST", "path": "/sign-in", "query_string": b""}
    asked["headers"] = [(b"host", b"localhost")]
    with served() as page:
        asyncio.run(page.dashboard.app(asked, leave, drop))


def test_any_number_of_filters_fills_no_memory(browser, page):
    for number in range(70):
        assert browser.get("/", params={"only": f"*{number}*"}).status_code == 200
    assert len(page.dashboard._drawn[1]) <= 64


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_is_done_but_by_the_second_form(page, browser, method):
    sign_in(browser)
    secret = hidden(browser.get(PAUSE), "secret")
    word = hidden(browser.post(PAUSE, data={"secret": secret, "why": "x"}), "word")
    asked = {"secret": secret, "word": word, "why": "x"}
    for path in ("/confirm", PAUSE, "/sign-out"):
        answer = browser.request(method, path, params=asked)
        assert (answer.status_code == 405) is (path != PAUSE or method not in ("GET", "HEAD"))
    assert page.done == []
    assert browser.post("/confirm", data=asked).status_code == 303  # still signed in
    assert len(page.done) == 1


def test_a_token_may_have_any_letters(tmp_path):
    path, token = tmp_path / "tokens", "ünï-\U0001f511 & more=1+1%41;#?\\'\"<b>"
    path.write_text(f"alice {token}\n", encoding="utf-8")
    with served(tokens=read_tokens(path)) as page, httpx.Client(base_url=page.url) as browser:
        assert sign_in(browser, token[:-1]).status_code == 403
        assert sign_in(browser, token).status_code == 303
        assert "Sign out alice" in browser.get("/").text
        assert token not in browser.get("/").text


def test_nothing_is_done_without_signing_in(page, browser):
    assert led_to(browser.get(PAUSE)).startswith("/sign-in?next=%2Fact%3Fdo%3Dpause")
    assert browser.post(PAUSE, data={"why": "x"}).status_code == 303
    assert browser.post("/confirm", data={"word": "0", "secret": "0"}).status_code == 403
    assert sign_in(browser, "nobody's").status_code == 403
    assert page.done == []


def test_an_action_is_asked_for_twice_and_done_once_in_the_name_of_who_signed_in(page, browser):
    answer = sign_in(browser)
    assert (answer.status_code, led_to(answer)) == (303, "/queues")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    first = browser.get(PAUSE)
    assert "You want to pause billing" in first.text
    secret = hidden(first, "secret")
    assert browser.post(PAUSE, data={"secret": secret, "why": " "}).status_code == 403
    assert browser.post(PAUSE, data={"secret": "0" * 48, "why": "x"}).status_code == 403
    second = browser.post(PAUSE, data={"secret": secret, "why": "<b>move</b>"})
    assert "&lt;b&gt;move&lt;/b&gt;" in second.text
    assert page.done == []
    word = {"secret": secret, "word": hidden(second, "word")}
    assert browser.post("/confirm", data={**word, "secret": ""}).status_code == 403
    elsewhere = {"Origin": "http://evil.example"}
    assert browser.post("/confirm", data=word, headers=elsewhere).status_code == 403
    done = browser.post("/confirm", data=word)
    assert (done.status_code, led_to(done)) == (303, "/career?of=billing")
    assert [one[1:] for one in page.done] == [("alice", "<b>move</b>")]
    assert "done for alice" in browser.get("/career?of=billing").text
    assert "done for alice" not in browser.get("/career?of=billing").text
    assert browser.post("/confirm", data=word).status_code == 409
    assert len(page.done) == 1
    page.refuses = True
    again = browser.post(PAUSE, data={"secret": secret, "why": "x"})
    browser.post("/confirm", data={"secret": secret, "word": hidden(again, "word")})
    told = browser.get("/career?of=billing").text
    assert "Not done as asked: nobody leads &#x27;billing&#x27; now" in told


def test_what_cannot_be_done_is_refused(browser):
    sign_in(browser)
    assert browser.get("/act?do=forget&of=billing").status_code == 400
    for asked in ("do=pause&of=nobody", "do=transfer&of=billing", "do=redrive-all&of=/leaderq"):
        assert browser.get(f"/act?{asked}").status_code == 409


def test_signing_out_ends_a_visit_and_signing_in_leads_to_no_other_site(browser):
    token = {"token": TOKENS["alice"]}
    for elsewhere in ("//evil.example", "https://evil.example", "/\\evil.example"):
        answer = browser.post("/sign-in", params={"next": elsewhere}, data=token)
        assert led_to(answer) == "/"
    secret = hidden(browser.get("/"), "secret")
    assert browser.post("/sign-out", data={"secret": "x"}).status_code == 403
    assert browser.post("/sign-out", data={"secret": secret}).status_code == 303
    assert led_to(browser.get(PAUSE)).startswith("/sign-in")


def test_a_page_that_is_read_only_does_nothing_for_anybody():
    with served() as page, httpx.Client(base_url=page.url, timeout=60) as browser:
        sign_in(browser)
        assert "act?" not in browser.get("/career?of=billing").text
        assert browser.get(PAUSE).status_code == 403
        assert browser.post(PAUSE, data={"why": "x"}).status_code == 403
        assert page.done == []


def test_where_others_can_reach_it_one_signs_in_for_looking_too():
    shared = {"is_local": False, "hosts": frozenset({"127.0.0.1"})}
    with served(**shared) as page, httpx.Client(base_url=page.url, timeout=60) as browser:
        for path in SCREENS:
            assert led_to(browser.get(path)).startswith("/sign-in")
        assert browser.get("/events").status_code == 403
        assert page.readings == 0
        cookie, *more = sign_in(browser).headers["set-cookie"].split("; ")
        assert "Secure" in more
        assert browser.get("/", headers={"Cookie": cookie}).status_code == 200


def test_a_stream_ends_with_the_visit_if_one_must_sign_in_for_looking():
    shared = {"is_local": False, "hosts": frozenset({"127.0.0.1"}), "every_s": 0.05}
    with served(**shared) as page, httpx.Client(base_url=page.url, timeout=60) as browser:
        cookie, *_ = sign_in(browser).headers["set-cookie"].split("; ")
        with browser.stream("GET", "/events", headers={"Cookie": cookie}) as stream:
            lines = stream.iter_lines()
            assert next(lines)
            page.dashboard._access.sign_out(cookie.partition("=")[2])
            assert len([*islice(lines, 100)]) < 10


def test_the_command_serves_what_is_in_zookeeper_and_tells_who_acted_until_it_is_stopped(
    address, session, tmp_path
):
    session.ensure_path("/leaderq/billing/candidates")
    session.ensure_path("/q-dead")
    session.create("/q")
    session.create("/q-dead/queue-", framed([b"a"], Note(died_ms=1)), sequential=True)
    (tmp_path / "tokens").write_text(f"alice {TOKENS['alice']}\n")
    command = [sys.executable, "-m", "leaderq", "dashboard", "--zookeeper", address]
    command += ["--bind", "127.0.0.1:0", "--allow-actions", "--tokens", str(tmp_path / "tokens")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        url = running.stderr.readline().strip()
        with httpx.Client(base_url=url, timeout=60) as browser:
            assert "/career?of=billing" in browser.get("/").text
            sign_in(browser)
            back = "/act?do=redrive-all&of=/q&with="
            secret = hidden(browser.get(back), "secret")
            asked = browser.post(back, data={"secret": secret, "why": "mended"})
            browser.post("/confirm", data={"secret": secret, "word": hidden(asked, "word")})
            assert "1 sent back to /q" in browser.get("/").text
            with browser.stream("GET", "/events?screen=/&seen=0") as stream:
                assert next(stream.iter_lines()).startswith("data: ")
                running.send_signal(signal.SIGTERM)
                assert running.wait(60) == 0
        (told,) = running.stderr.read().splitlines()
    assert "operator acts by=alice do=redrive-all of=/q with= why=mended" in told


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--allow-actions", "--allow-actions needs --tokens FILE"),
        ("--bind 0.0.0.0:0", "give --tokens FILE, for signing in, and --host-name NAME"),
        ("--tokens /absent", "tokens cannot be read from /absent"),
        ("--host-name https://leaderq.example/", "'https://leaderq.example/' is not the name"),
        ("--host-name leaderq.example:8443", "without scheme, port and path"),
        (f"--bind 127.0.0.1:0 --host-name {'ü' * 70}", "is not the name of a host"),
        ("--bind 127.0.0.999:80 --tokens {tokens} --host-name a", "cannot be listened on"),
        (f"--bind {'ü' * 70}:80 --tokens {{tokens}} --host-name a", "cannot be listened on"),
    ],
)
def test_the_command_refuses_what_would_not_be_safe_or_cannot_be(options, said, tmp_path, capsys):
    (tmp_path / "tokens").write_text(f"alice {TOKENS['alice']}\n")
    assert main(["dashboard", *options.format(tokens=tmp_path / "tokens").split()]) == 2
    assert said in capsys.readouterr().err


def test_without_the_extra_the_command_says_which_it_needs(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "leaderq.dashboard.serving")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["dashboard"]) == 2
    assert "the page needs uvicorn: pip install 'leaderq[dashboard]'" in capsys.readouterr().err
