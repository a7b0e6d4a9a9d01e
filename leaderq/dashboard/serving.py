"""Sends screens to browsers (Starlette, uvicorn). A page holds a screen as it is now, and the
address of a stream of server-sent events, which sends the same screen after each reading.

All addresses lie directly below one folder, and are written relative to it. So the page works below
any prefix, if a proxy takes the prefix off.

A screen is drawn once for each reading, however many look at it. Only the refresher's thread sends
requests to ZooKeeper, and actions do, each on a worker thread; a page never does.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from importlib import resources
from string import Template
from typing import Any
from urllib.parse import parse_qsl, urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leaderq.admin.actions import Action, Deed
from leaderq.admin.snapshot import PageSnapshot
from leaderq.base import clock
from leaderq.dashboard.access import COOKIE, HEADERS, LASTS_S, PageAccess, Visit
from leaderq.dashboard.markup import Markup, joined, tag
from leaderq.dashboard.refresher import Refresher
from leaderq.dashboard.screens import PageScreen, ScreenKind, ScreenOptions, draw, is_known
from leaderq.errors import LeaderqError, SessionClosed

_MOST_BYTES = 8192  # of a form
_MOST_DIGITS = 18
_MOST_DRAWN = 64  # screens that are kept until the next reading
_STATIC = {"/page.css": "text/css", "/page.js": "text/javascript", "/icon.svg": "image/svg+xml"}
_MENU = (ScreenKind.CAREERS, ScreenKind.QUEUES, ScreenKind.SCHEDULES)
_UNDER = {ScreenKind.CAREER: ScreenKind.CAREERS, ScreenKind.QUEUE: ScreenKind.QUEUES}
CarryOut = Callable[[Action, str, str], str]


class Guarded:
    """Refuses requests that were not meant for this page, and adds the headers that keep other
    sites off.
    """

    def __init__(self, app: ASGIApp, access: PageAccess) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        own = self._access.is_own(headers.get("origin"), headers.get("sec-fetch-site"), host)

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        app: ASGIApp = self._app
        if not self._access.is_expected(host):
            app = Response("this host name is not expected; see --host-name\n", 421)
        elif scope["method"] not in ("GET", "HEAD") and not own:
            app = Response("this form came from another site\n", 403)
        await app(scope, receive, send_safely)


class Dashboard:
    """The application. It calls ``carry_out(action, by, why)``, which may wait, and returns what
    happened.
    """

    def __init__(
        self, refresher: Refresher, carry_out: CarryOut, access: PageAccess, options: ScreenOptions
    ) -> None:
        self._refresher, self._carry_out = refresher, carry_out
        self._access, self._options = access, options
        self._drawn: tuple[int, dict[PageScreen, Markup]] = (0, {})
        routes = [Route(path, self._static) for path in _STATIC]
        routes += [Route(kind.value, self._page) for kind in ScreenKind]
        routes += [
            Route("/events", self._events),
            Route("/sign-in", self._sign_in, methods=["GET", "POST"]),
            Route("/sign-out", self._sign_out, methods=["POST"]),
            Route("/act", self._act, methods=["GET", "POST"]),
            Route("/confirm", self._confirm, methods=["POST"]),
        ]
        app = Starlette(routes=routes, exception_handlers={SessionClosed: self._closed})
        self.app = Guarded(app, access)

    async def _page(self, request: Request) -> Response:
        visit = self._visit(request)
        if not self._may_look(request):
            return _to_sign_in(request)
        screen = _screen(request.url.path, request.query_params)
        snapshot = await self._snapshot(0, screen)
        status = 200 if is_known(screen, snapshot) or snapshot.problem else 404
        asked = {"screen": screen.kind.value, "of": screen.subject, "only": screen.only}
        stream = f"./events?{urlencode({**asked, 'seen': snapshot.number})}"
        controls = None if screen.subject else _filter(screen)
        body = joined(controls, tag("div", self._draw(screen, snapshot), id="screen"))
        return self._shell(screen.title, body, visit, screen.kind, status, stream)

    async def _events(self, request: Request) -> Response:
        if not self._may_look(request):
            return Response("sign in first\n", 403)
        screen = _screen(request.query_params.get("screen", "/"), request.query_params)
        seen = request.query_params.get("seen", "0")

        async def told() -> AsyncIterator[str]:
            number = int(seen[:_MOST_DIGITS]) if seen.isdecimal() else 0
            while True:
                try:
                    snapshot = await self._snapshot(number, screen)
                except SessionClosed:
                    return
                if not self._may_look(request):
                    return  # the visit has ended meanwhile
                number = snapshot.number
                lines = str(self._draw(screen, snapshot)).splitlines()
                yield "".join(f"data: {line}\n" for line in lines) + "\n"

        unbuffered = {"X-Accel-Buffering": "no"}  # nginx would keep what is sent for later
        return StreamingResponse(told(), headers=unbuffered, media_type="text/event-stream")

    def _snapshot(self, seen: int, screen: PageScreen) -> Awaitable[PageSnapshot]:
        return asyncio.wrap_future(self._refresher.after(seen, screen.queue))

    def _draw(self, screen: PageScreen, snapshot: PageSnapshot) -> Markup:
        if self._drawn[0] != snapshot.number or len(self._drawn[1]) >= _MOST_DRAWN:
            self._drawn = (snapshot.number, {})
        drawn = self._drawn[1]
        if screen not in drawn:
            drawn[screen] = draw(screen, snapshot, self._options, clock.now_ms())
        return drawn[screen]

    async def _closed(self, _request: Request, _error: Exception) -> Response:
        return Response("the page is closed\n", 503)

    async def _static(self, request: Request) -> Response:
        path = request.url.path
        return Response(_file(path[1:]), media_type=_STATIC[path])

    def _may_look(self, request: Request) -> bool:
        return self._access.is_local or self._visit(request) is not None

    def _visit(self, request: Request) -> Visit | None:
        return self._access.visit(request.cookies.get(COOKIE))

    async def _sign_in(self, request: Request) -> Response:
        if not self._access.tokens:
            return self._refused("Nobody can sign in: the page was started without --tokens.")
        after = _local(request.query_params.get("next", "/"))
        problem, status = None, 200
        if request.method == "POST":
            cookie = self._access.sign_in((await _form(request)).get("token", ""))
            if cookie is not None:
                answer = RedirectResponse(after, 303)
                secure = not self._access.is_local  # others reach it through a proxy with TLS
                answer.set_cookie(
                    *(COOKIE, cookie, LASTS_S), secure=secure, httponly=True, samesite="strict"
                )
                return answer
            problem, status = tag("p", "That is nobody's token.", class_="alert"), 403
        field = _field("token", type="password", autocomplete="current-password")
        form = [tag("label", "Your token", for_="token"), field, tag("button", "Sign in")]
        # to its own address, with the query
        asked = tag("form", *form, method="post", class_="ask")
        return self._shell("Sign in", joined(problem, asked), None, status=status)

    async def _sign_out(self, request: Request) -> Response:
        visit = self._visit(request)
        if visit is None or (await _form(request)).get("secret") != visit.secret:
            return self._refused("The form is too old.")
        self._access.sign_out(request.cookies.get(COOKIE))
        return RedirectResponse("./", 303)

    async def _act(self, request: Request) -> Response:
        """Ask what is to be done and why (GET); then ask for a confirmation (POST)."""
        action, visit = _action(request.query_params), self._visit(request)
        if not self._options.actions:
            return self._refused("The page is read-only; it was started without --allow-actions.")
        if action is None:
            return self._refused("There is no such action.", 400)
        if visit is None:
            return _to_sign_in(request)
        if problem := action.problem(await self._snapshot(0, _place_of(action))):
            return self._refused(f"That cannot be done: {problem}.", 409)
        if request.method == "GET":
            what = tag("p", f"You want to {action.sentence}.")
            asked = [what, tag("label", "Why?", for_="why"), _field("why", maxlength=200)]
            return self._question(action, visit, action.address, asked, "Go on")
        form = await _form(request)
        why = " ".join(form.get("why", "").split())[:200]
        if form.get("secret") != visit.secret or not why:
            return self._refused("The form is too old, or has no reason.")
        what = tag("p", f"Really {action.sentence}?")
        asked = [what, tag("p", f"Because: {why}"), _hidden("word", visit.ask(action, why))]
        return self._question(action, visit, "./confirm", asked, "Yes, do it")

    async def _confirm(self, request: Request) -> Response:
        visit, form = self._visit(request), await _form(request)
        if not self._options.actions or visit is None or form.get("secret") != visit.secret:
            return self._refused("Sign in, and ask again.")
        if (asked := visit.confirmed(form.get("word", ""))) is None:
            return self._refused("That was confirmed already, or too late; ask again.", 409)
        action, why = asked
        try:
            visit.notice = await run_in_threadpool(self._carry_out, action, visit.user, why)
        except LeaderqError as error:
            visit.notice = f"Not done as asked: {error}"
        return RedirectResponse(_place_of(action).address, 303)

    def _question(
        self, action: Action, visit: Visit, to: str, asked: list[Markup], yes: str
    ) -> Response:
        back = tag("a", "No, go back", href=_place_of(action).address)
        end = tag("p", tag("button", yes), " ", back)
        content = [*asked, _hidden("secret", visit.secret), end]
        form = tag("form", content, method="post", action=to, class_="ask")
        return self._shell(action.label, form, visit)

    def _refused(self, sentence: str, status: int = 403) -> Response:
        return self._shell("Refused", tag("p", sentence, class_="alert"), None, status=status)

    def _shell(
        self,
        title: str,
        body: Markup,
        visit: Visit | None,
        kind: ScreenKind | None = None,
        status: int = 200,
        stream: str = "",
    ) -> Response:
        here, notice = kind and _UNDER.get(kind, kind), None
        marks = {one: "page" if one is here else None for one in _MENU}
        menu = [
            tag("li", tag("a", one.title, href=one.address, aria_current=marks[one.kind]))
            for one in map(PageScreen, marks)
        ]
        who = tag("span", "read-only", class_="faint")
        if visit is not None:
            notice, visit.notice = visit.notice, None
            leave = tag("button", f"Sign out {visit.user}")
            content = [_hidden("secret", visit.secret), leave]
            who = tag("form", content, method="post", action="./sign-out")
        elif self._options.actions:
            who = tag("a", "Sign in", href="./sign-in")
        said = notice and tag("p", notice, class_="notice", role="status")
        parts = {"title": title, "stream": stream, "body": body, "menu": menu, "who": who}
        filled = {name: joined(part) for name, part in {**parts, "notice": said}.items()}
        return HTMLResponse(Template(_file("shell.html").decode()).substitute(filled), status)


def _file(name: str) -> bytes:
    return resources.files(__package__).joinpath("static", name).read_bytes()


def _hidden(name: str, value: str) -> Markup:
    return tag("input", type="hidden", name=name, value=value)


def _field(name: str, **attributes: Any) -> Markup:
    return tag("input", name=name, id=name, required=True, autofocus=True, **attributes)


def _screen(path: str, asked: Mapping[str, str]) -> PageScreen:
    kind = next((one for one in ScreenKind if one.value == path), ScreenKind.CAREERS)
    is_of_one = kind in _UNDER
    subject, only = asked.get("of", "")[:1000], asked.get("only", "")[:100]
    return PageScreen(kind, subject if is_of_one else "", "" if is_of_one else only)


def _action(asked: Mapping[str, str]) -> Action | None:
    deed = next((one for one in Deed if one.value[0] == asked.get("do")), None)
    return deed and Action(deed, asked.get("of", ""), asked.get("with", ""))


def _place_of(action: Action) -> PageScreen:
    kind = ScreenKind.QUEUE if action.deed.is_about_queue else ScreenKind.CAREER
    return PageScreen(kind, action.subject)


def _filter(screen: PageScreen) -> Markup:
    known = {"type": "search", "name": "only", "id": "only", "placeholder": "name or team-*"}
    content = [tag("label", "Only", for_="only"), tag("input", value=screen.only, **known)]
    to = PageScreen(screen.kind).address
    return tag("form", content, tag("button", "Show"), action=to, class_="filter")


def _to_sign_in(request: Request) -> Response:
    asked = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"./sign-in?{urlencode({'next': request.url.path + asked})}", 303)


def _local(address: str) -> str:
    """Return ``address``, a path, relative to any other address of the page; if it is none of this
    page, the address of the first screen.
    """
    is_ours = address.startswith("/") and not address.startswith(("//", "/\\"))
    return f".{address}" if is_ours and address.isprintable() else "./"


async def _form(request: Request) -> dict[str, str]:
    body = b""
    with suppress(ClientDisconnect):
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_BYTES:
                return {}
    return dict(parse_qsl(body.decode(errors="replace")))


class PageServer(uvicorn.Server):
    """A server that sends no name of its own, logs no requests, and ends its streams when it
    stops.
    """

    def __init__(self, dashboard: Dashboard, refresher: Refresher) -> None:
        quiet: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False}
        plain: dict[str, Any] = {"lifespan": "off", "ws": "none", "http": "h11"}
        limits: dict[str, Any] = {"limit_concurrency": 512, "timeout_graceful_shutdown": 1}
        config = uvicorn.Config(dashboard.app, proxy_headers=False, **quiet, **plain, **limits)
        super().__init__(config)
        self._refresher = refresher

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._refresher.stop()
        await super().shutdown(sockets)
