"""A small vocabulary for short scenarios in simulated time.

A :class:`Scene` is one life, led step by step: the test stands outside of it, lets time go on
(``run``, ``until``) and has things done in simulated processes (``Guest.do``; an :class:`Actor` is
a candidate, too). Faults come at a request: ``lose``, ``at`` and ``every_point`` name it by what it
asks for, or by its number (:func:`nth`). Whatever a scene is about, nobody may begin a term while
somebody else's passes ``check()``: each scene is judged so.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

from leaderq import Candidate, Session, connect
from leaderq.election.decision import Role
from leaderq.errors import Deposed
from leaderq.events import Event, EventBus, Standing, TermBegan
from leaderq.term import OpenTerm, Reason
from leaderq.testing.simulation.chronicle import failures
from leaderq.testing.simulation.cluster import ADDRESS, SimulatedCluster
from leaderq.testing.simulation.ensemble.tree import OWNER
from leaderq.testing.simulation.installing import installed
from leaderq.testing.simulation.network import Connection
from leaderq.testing.simulation.primitives import SimulatedEvent
from leaderq.testing.simulation.scheduler import World
from leaderq.zookeeper import Delete

T = TypeVar("T")
FOLDER = "/leaderq/c"
LINE, CONTROL = f"{FOLDER}/candidates", f"{FOLDER}/control"
Rule = Callable[[Any], str | None]
"""Looks at a request as a server is about to carry it out; says what is lost: the ``request``, the
``answer``, or nothing (``None``). The connection goes with either. ``held``: it is carried out when
its host is healed, and so is what it asks for later.
"""


def scene(seeds: int = 20, **options: Any) -> Callable[[Callable[..., None]], Any]:
    """Lead the decorated scenario with so many seeds; its error names the seed and the end. What it
    takes beside the scene are parameters and fixtures of pytest.
    """

    def decorated(scenario: Callable[..., None]) -> Callable[..., None]:
        def test(**given: Any) -> None:
            for seed in range(seeds):
                _led(seed, scenario, options, **given)

        test.led = lambda seed: _led(seed, scenario, options)
        return _as_test(test, scenario, 1)

    return decorated


def every_point(least: int, **options: Any) -> Callable[[Callable[..., list[Any]]], Any]:
    """Lead the decorated ``scenario(scene, n, ...)`` with a fault at the n-th request, for all n
    there are, ``least`` of them or more: until it returns that none was struck.
    """

    def decorated(scenario: Callable[..., list[Any]]) -> Callable[..., None]:
        def test(**given: Any) -> None:
            for point in itertools.count(1):
                if not _led(f"{point}/0", scenario, options, point=point, **given):
                    assert point > least
                    return

        return _as_test(test, scenario, 2)

    return decorated


def _as_test(test: Any, scenario: Callable[..., object], own: int) -> Callable[..., None]:
    """With the parameters of the scenario but for the first, ``own`` ones."""
    functools.update_wrapper(test, scenario)
    del test.__wrapped__  # pytest would look there
    signature = inspect.signature(scenario)
    test.__signature__ = signature.replace(parameters=[*signature.parameters.values()][own:])
    made: Callable[..., None] = test
    return made


def _led(seed: object, scenario: Callable[..., T], options: dict[str, Any], **given: Any) -> T:
    world = World(f"{scenario.__name__}/{seed}")
    with Scene(world, **options).led() as one:
        try:
            found = scenario(one, **given)
            assert not one.overlaps, one.overlaps
            assert not failures(world), failures(world)
        except AssertionError as error:
            history = "\n".join([*world.lines()][-40:])
            raise AssertionError(
                f"seed {seed} at {world.now_s:.3f} s: {error}\n{history}"
            ) from error
    return found


def lives(scenario: Callable[[Scene], None], seeds: int, **options: Any) -> list[list[str]]:
    """Who believed beside whom in each of so many lives, for what is known and not mended yet."""
    found = []
    for seed in range(seeds):
        with Scene(World(f"{scenario.__name__}/{seed}"), **options).led() as one:
            scenario(one)
            found.append(one.overlaps)
    return found


class Guest:
    def __init__(self, scene: Scene, name: str, timeout_s: float) -> None:
        self.scene = scene
        self.name = name
        self.process = scene.world.process(name, f"host-{name}")
        self.process.deaths.append(lambda: scene.network.closed_by_death(self.process))
        self.session: Session = self.do(
            lambda: connect(ADDRESS, timeout_s=timeout_s, connect_timeout_s=30.0)
        )

    def begin(self, what: Callable[[], object]) -> Job:
        return Job(self, what)

    def do(self, what: Callable[[], T], within_s: float = 60.0) -> T:
        return self.begin(what).result(within_s)


class Actor(Guest):
    def __init__(self, scene: Scene, name: str, timeout_s: float) -> None:
        super().__init__(scene, name, timeout_s)
        self.bus = EventBus()
        self.told: list[Event] = []
        self.candidate = Candidate(self.session, "c", id=name, events=self.bus)
        self.bus.subscribe(Event, self._heard)

    def _heard(self, event: Event) -> None:
        self.scene.world.note("told", event=type(event).__name__, candidate=self.name)
        self.told.append(event)
        if isinstance(event, TermBegan):
            tenure = self.candidate._campaign.tenure
            self.scene.term_began(self, tenure.term)

    def stand(self) -> None:
        self.do(self.candidate.stand)

    def await_term(self, within_s: float = 60.0) -> OpenTerm:
        term = self.do(lambda: self.candidate.await_term(within_s), within_s + 1)
        assert term is not None, f"{self.name} has won no term within {within_s} s"
        return term

    def lead(self) -> OpenTerm:
        self.stand()
        return self.await_term()

    def wait_in_line(self) -> None:
        """Let it stand; returns when it has watched another one for a moment."""
        before = len(self.events(Standing))
        self.stand()
        self.scene.until(lambda: len(self.events(Standing)) > before)
        self.scene.run(0.1)
        assert self.candidate.role is Role.WAITING, f"{self.name} is {self.candidate.role.name}"

    def conclude(self, term: OpenTerm, reason: Reason = Reason.WITHDRAWN) -> bool:
        return self.do(lambda: self.candidate.conclude(term, reason))

    def events(self, kind: type[Event]) -> list[Any]:
        return [one for one in self.told if isinstance(one, kind)]

    def believes(self, term: OpenTerm) -> bool:
        """Whether ``check()`` would pass in its process now."""
        return self.process.alive and not term._over and self.process.clock_s() < term.deadline

    def refuses(self, term: OpenTerm) -> bool:
        """Whether ``check()`` raises in its process."""

        def check() -> bool:
            try:
                term.check()
            except Deposed:
                return True
            return False

        return self.do(check)

    @contextmanager
    def stalled(self, kind: type[Event]) -> Iterator[Callable[[], bool]]:
        """Within the block, whoever publishes the first such event stands still; gives a function
        that says whether it does.
        """
        go = SimulatedEvent()
        reached: list[Event] = []

        def hold(event: Event) -> None:
            if not reached:
                reached.append(event)
                go.wait(1000)

        forget = self.bus.subscribe(kind, hold)
        yield lambda: bool(reached)
        forget()
        go.set()


class Job:
    def __init__(self, guest: Guest, what: Callable[[], Any]) -> None:
        self._guest = guest
        self._what = what
        self.is_done = False
        self._result: Any = None
        self._error: BaseException | None = None
        guest.process.spawn(self._run, "job")

    def _run(self) -> None:
        try:
            self._result = self._what()
        except Exception as error:
            self._error = error
        self.is_done = True

    def result(self, within_s: float = 60.0) -> Any:
        self._guest.scene.until(lambda: self.is_done, within_s)
        if self._error is not None:
            raise self._error
        return self._result


class Scene:
    """One life. ``servers``: how many; the last one leads. ``timeout_s`` is T."""

    def __init__(
        self, world: World, *, servers: int = 1, timeout_s: float = 6.0, tick_s: float = 1.0
    ) -> None:
        self.world = world
        self.timeout_s = timeout_s
        self.cluster = SimulatedCluster(world, timeout_s=timeout_s, servers=servers, tick_s=tick_s)
        self.network = self.cluster.network
        self.ensemble = self.cluster.ensemble
        self.overlaps: list[str] = []
        self.is_forced = False
        """Somebody ended a session or took a znode away: until its owner hears of that it believes,
        and nothing but its fenced writes is refused.
        """
        self.rules: list[tuple[str, Rule]] = []
        self._terms: list[tuple[Actor, OpenTerm]] = []
        self._pinned: dict[str, tuple[int, ...]] = {}
        self._beside: Actor | None = None
        self.network.servers = _Servers(world, range(servers), self._pinned)

    @contextmanager
    def led(self) -> Iterator[Scene]:
        """Within the block the program runs in this life."""
        real = Connection._arrived

        def arrived(connection: Connection, xid: int, request: Any) -> None:
            for host, rule in list(self.rules):
                if connection.process.host == host and (lost := rule(request)) is not None:
                    if lost == "request":
                        connection.reset()
                        return
                    if lost == "held":
                        self.network.cut(host, back=False)
                        connection._there.put_back(arrived, connection, xid, request)
                        return
                    connection._lost_xid = xid
            real(connection, xid, request)

        with (
            installed(self.world, self.network),
            mock.patch.object(Connection, "_arrived", arrived),
        ):
            yield self

    def actor(
        self, name: str, *, timeout_s: float | None = None, server: int | None = None
    ) -> Actor:
        """A process, connected; through ``server`` alone if that is given."""
        if server is not None:
            self._pinned[f"host-{name}"] = (server,)
        return Actor(self, name, self.timeout_s if timeout_s is None else timeout_s)

    def actors(self, names: str, **options: Any) -> list[Actor]:
        return [self.actor(name, **options) for name in names]

    def standing(self, names: str) -> tuple[Any, ...]:
        """Actors in this order of the line, and the term that the first of them leads."""
        first, *others = actors = self.actors(names)
        term = first.lead()
        for one in others:
            one.wait_in_line()
        return *actors, term

    def guests(self, names: str) -> list[Guest]:
        return [Guest(self, name, self.timeout_s) for name in names]

    @property
    def beside(self) -> Actor:
        """One that no fault touches."""
        if self._beside is None:
            self._beside = self.actor("beside", timeout_s=20.0)
        return self._beside

    def ask(self, what: Callable[[Session], T]) -> T:
        beside = self.beside
        return beside.do(lambda: what(beside.session))

    @property
    def now_s(self) -> float:
        return self.world.now_s

    def run(self, seconds: float) -> None:
        self.world.run(self.now_s + seconds)

    def until(self, fact: Callable[[], object], within_s: float = 60.0) -> None:
        """Let time go on until ``fact()``; fails after ``within_s``."""
        is_so = self.world.run(self.now_s + within_s, unless=lambda: bool(fact()))
        assert is_so or fact(), f"not so within {within_s} s"

    def term_began(self, who: Actor, term: OpenTerm) -> None:
        for other, earlier in self._terms:
            if other.believes(earlier) and not self.is_forced:
                left_s = earlier.deadline - other.process.clock_s()
                self.overlaps.append(
                    f"{who.name} began term {term.number}, {other.name} believes in its term"
                    f" {earlier.number} for {left_s:.3f} s more"
                )
        self._terms.append((who, term))

    def line(self) -> dict[str, int]:
        """The znodes in line, each with the session that owns it."""
        return {
            path.rsplit("/", 1)[1]: node.stat[OWNER]
            for path, node in self.cluster.tree.nodes.items()
            if path.startswith(f"{LINE}/")
        }

    def record(self) -> dict[str, Any]:
        data = self.cluster.znodes().get(f"{FOLDER}/term")
        return dict(json.loads(data)) if data else {}

    def expire(self, actor: Guest) -> None:
        assert actor.session.id is not None
        self.is_forced = True
        self.ensemble.expire(actor.session.id)

    def take(self, *names: str) -> None:
        """Delete these znodes of the line, as a clumsy operator would."""
        self.is_forced = True
        self.ask(lambda beside: beside.multi([Delete(f"{LINE}/{name}") for name in names]))

    def replace(self, actor: Guest) -> None:
        actor.do(lambda: actor.session.replace("a scenario wants it"))

    def cut(self, actor: Guest) -> None:
        """A black hole."""
        self.network.cut(actor.process.host)

    def heal(self, actor: Guest) -> None:
        self.network.heal(actor.process.host)

    def reset(self, actor: Guest) -> None:
        self.network.reset(actor.process)

    def lose(self, actor: Guest, kind: Callable[[Any], bool], what: str = "answer") -> list[Any]:
        """Lose the first request that is of this ``kind``, or its answer, or let it be ``held``;
        gives what was lost.
        """
        lost: list[Any] = []

        def rule(request: Any) -> str | None:
            if lost or not kind(request):
                return None
            lost.append(request)
            return what

        self.rules.append((actor.process.host, rule))
        return lost

    def at(self, actor: Guest, kind: Callable[[Any], bool], act: Callable[[], object]) -> list[Any]:
        """Call ``act()`` just before the first request of this ``kind`` is carried out."""
        seen: list[Any] = []

        def rule(request: Any) -> str | None:
            if not seen and kind(request):
                seen.append(request)
                act()
            return None

        self.rules.append((actor.process.host, rule))
        return seen


class _Servers:
    def __init__(self, world: World, every: range, pinned: dict[str, tuple[int, ...]]) -> None:
        self._world, self._every, self._pinned = world, every, pinned

    def _known(self) -> tuple[int, ...]:
        task = self._world.current
        return self._pinned.get("" if task is None else task.process.host, tuple(self._every))

    def __iter__(self) -> Iterator[int]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self._known())


_OF_THE_CONNECTION = (-11, 11, 100, 101, 105)  # close, ping, login, watches


def is_asking(request: Any) -> bool:
    """Whatever is not about the connection itself."""
    return request.type not in _OF_THE_CONNECTION


def nth(number: int, kind: Callable[[Any], bool] = is_asking) -> Callable[[Any], bool]:
    """The n-th request of this ``kind``, from 1; for one rule."""
    numbers = itertools.count(1)
    return lambda request: kind(request) and next(numbers) == number


def _names(request: Any, path: str) -> bool:
    """Whether one of the operations of a transaction is about ``path``."""
    packed = path.encode()
    return len(packed).to_bytes(4, "big") + packed in request.serialize()


def _path(request: Any) -> str:
    return str(getattr(request, "path", ""))


def is_create(request: Any) -> bool:
    """The creation of a znode in the line."""
    return request.type in (1, 15) and _path(request).startswith(f"{LINE}/")


def is_multi(request: Any) -> bool:
    return bool(request.type == 14)


def is_claim(request: Any) -> bool:
    """The transaction by which a term is won."""
    return is_multi(request) and _names(request, CONTROL)


def is_release(request: Any) -> bool:
    """The transaction by which a term is given back: two operations name the znode of the line."""
    return is_multi(request) and request.count == 3 and not is_claim(request)


def is_close(request: Any) -> bool:
    return bool(request.type == -11)
