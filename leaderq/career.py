"""The base classes of careers. The user writes a class that says what a leader does.

A career lives through any number of terms in one process. In each term leaderq calls ``inaugurate``
once, ``execute`` again and again (one call is one unit of work), and ``handOver`` once, always in
that order and on the same thread, so that a career may keep a database connection from one stage to
the next. ``handOver`` runs however the term ended, also after ``inaugurate`` or ``execute`` raised,
and also when the leader was deposed; ``term.reason`` tells why. The class is called without
arguments.

A class that cannot work is refused before it stands for election: if a method would only make a
coroutine or a generator, or cannot be called with the arguments that leaderq passes; and if a
public name is nearly one of leaderq's, so that it would do nothing.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from difflib import get_close_matches
from inspect import getattr_static, isfunction, isroutine, signature
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakSet

from leaderq.base.arguments import coroutine_function, plain_function, require, require_finished

if TYPE_CHECKING:
    from leaderq.config import Settings
    from leaderq.events import EventBus
    from leaderq.term import EndingTerm, Term
    from leaderq.zookeeper import Session


_SHORT = 5
"""Names up to this length resemble others too easily to be taken for a slip."""


_STAGES = ("prepare", "inaugurate", "execute", "handOver", "hand_over", "healthy", "retire")


class ILeaderCareer(ABC):
    """The three stages of a term. ``term`` is a :class:`~leaderq.Term`."""

    # Any, because an AsyncLeaderCareer is one of these too.

    @abstractmethod
    def inaugurate(self, term: Any) -> Any:
        """Take office: load what the work needs. No unit of work begins before this returns."""

    @abstractmethod
    def execute(self, term: Any) -> Any:
        """Do one unit of work; called again and again. ``term.wait(s)`` if there is nothing
        to do.
        """

    @abstractmethod
    def handOver(self, term: Any) -> Any:  # noqa: N802  (the user's name)
        """Release what ``inaugurate`` took. The next leader waits for it, at most
        ``handover_budget_s`` seconds.
        """


class Career(ILeaderCareer):
    """What a :class:`LeaderCareer` and an :class:`~leaderq.AsyncLeaderCareer` have in common."""

    name: ClassVar[str | None] = None
    atomic: ClassVar[bool] = False
    version: ClassVar[str] = ""
    Options: ClassVar[type | None] = None

    session: Session
    settings: Settings
    events: EventBus
    candidate_id: str
    options: Any

    _called: ClassVar[Sequence[str]] = _STAGES
    _is_async: ClassVar[bool] = False
    """Whether the methods that leaderq calls are coroutine functions, except :meth:`healthy`."""
    _async_twin: ClassVar[str | None] = "AsyncLeaderCareer"
    """The class to derive from for those who would rather write coroutines."""
    _stands_again: bool = True  # set to False: the runner ends after this term, also a failed one

    if TYPE_CHECKING:

        def prepare(self) -> Any: ...
        def hand_over(self, term: Any) -> Any: ...
        def retire(self) -> Any: ...

    def healthy(self) -> bool:
        """Return whether to go on leading. It is called on a thread of its own, every third of the
        session time-out. If it returns ``False``, raises, or does not return in that time, the term
        ends (*health*).
        """
        return True

    @property
    def _is_watched(self) -> bool:
        """Whether the class overrides :meth:`healthy`, so that it must be called."""
        return type(self).healthy is not Career.healthy

    def _take(self, settings: Settings) -> None:
        """Keep the settings, and the career's own options among them."""
        self.settings, self.options = settings, settings.options
        is_made = isinstance(self.Options, type) and isinstance(self.options, self.Options)
        if self.Options is not None and not is_made:
            from leaderq.config.own_options import made_options

            self.options = made_options(
                self.Options, self.options, settings.career or career_name(self)
            )

    @classmethod
    def _wrong_values(cls) -> Iterator[str | None]:
        """What is wrong with the values of attributes; for leaderq's own careers."""
        yield from ()

    def _check_declared(self, settings: Settings) -> None:
        """Refuse a class that cannot be run, before anything is connected to; for leaderq's own
        careers.
        """

    def _begin(self, term: Term) -> None:
        """Called before ``inaugurate``, even if the user overrides that; for leaderq's own
        careers.
        """

    def _finish(self, term: Term) -> None:
        """Called after ``handOver``, even if the user overrides that; for leaderq's own careers."""

    def _perform(self, code: Callable[..., object], *given: Any, **_limits: Any) -> None:
        """Call a method of the user, and return when its work is done; see :func:`perform`."""
        perform(code, *given)

    def _close(self) -> None:
        """Called last of all, after ``retire``; for leaderq's own careers."""


class LeaderCareer(Career):
    """A career with safe defaults: subclass it and write ``execute``.

    From inside, ``term.resign()`` ends the term and ``term.finish()`` the work of this process.
    Class attributes: ``name``: the name for which candidates compete; by default the class name in
    kebab-case (``ad-billing`` for ``AdBilling``). ``atomic``: ``False`` (default): when the term
    ends, the unit in hand is finished within ``handover_budget_s`` and the next leader waits for
    it. ``True``: a unit is all or nothing by itself (such as a database transaction), so it may be
    abandoned: :class:`~leaderq.running.UnitAbandoned` is raised inside it at once, unless it was
    the unit that resigned. ``version``: operators see it, and ``prefer = "newest"`` compares it; by
    default the version of the distribution to which the class's top-level module belongs.
    ``Options``: a dataclass; :attr:`options` is then an instance of it.

    Set before :meth:`prepare`: ``session``, ``settings``, ``events``, ``candidate_id``, and
    ``options``: your own values, from ``[careers.NAME.options]`` of ``leaderq.toml`` and
    ``LEADERQ_OPTIONS_*`` variables. With ``Options`` each value is checked against the type of its
    field before the career stands, and the text of a variable is converted; without, ``options`` is
    a mapping.
    """

    def prepare(self) -> None:
        """Open resources that would be slow to open after winning; called before standing for
        election.

        Called once in the life of the process. An exception ends the process with an error.
        """

    def inaugurate(self, term: Term) -> None:
        """Do nothing; override it to load what the work needs."""

    def handOver(self, term: EndingTerm) -> None:  # noqa: N802  (the user's name)
        """Do nothing; override it to release what :meth:`inaugurate` took."""
        self.hand_over(term)

    def hand_over(self, term: EndingTerm) -> None:
        """Do what :meth:`handOver` does: override one of the two."""

    def retire(self) -> None:
        """Close what :meth:`prepare` opened; called once, when the process stops standing."""


def perform(code: Callable[..., object], *given: Any, **_limits: Any) -> None:
    """Call a method of a career; refuse a method that only made work which nobody would do."""
    require_finished(code(*given), getattr(code, "__name__", "a method of the career"))


def check_career(kind: type[ILeaderCareer]) -> None:
    """Return if the class can lead; raise ``ConfigurationError`` with everything that is wrong with
    it.
    """
    require(*career_problems(kind))


_fit: WeakSet[type] = WeakSet()
"""The classes that can lead."""


def career_problems(kind: type[ILeaderCareer]) -> Sequence[str]:
    """What is wrong with the class, one sentence for each problem. A class without problems is not
    checked again.
    """
    if kind in _fit:
        return ()
    found = tuple(_problems(kind))
    if not found:
        _fit.add(kind)
    return found


def _problems(kind: type[ILeaderCareer]) -> Iterator[str]:
    for name in getattr(kind, "_called", LeaderCareer._called):
        if problem := _wrong_function(kind, name):
            yield problem
        yield from _wrong_parameters(kind, name)
    written = {
        name: value for one in reversed(kind.__mro__) for name, value in _public(one, ours=False)
    }
    if issubclass(kind, Career):
        yield from filter(None, kind._wrong_values())
    if {"handOver", "hand_over"} <= set(written):
        yield f"{kind.__qualname__} has both handOver and hand_over; they are one method: keep one"
    known = {
        name: value for one in reversed(kind.__mro__) for name, value in _public(one, ours=True)
    }
    for name, value in written.items():
        if name not in known and (meant := _meant(name, value, known, written)):
            remedy = f"did you mean {meant!r}? If it is your own, begin it with '_'"
            yield (
                f"{name!r} of {kind.__qualname__} is not known to leaderq and would do nothing;"
                f" {remedy}"
            )


def _wrong_function(kind: type, name: str) -> str | None:
    method, what = getattr(kind, name, print), f"{name} of {kind.__qualname__}"
    if method is not print and getattr(kind, "_is_async", False) and name != "healthy":
        if coroutine_function(what, method) is None:
            return None
        return f"{what} is a plain function, which would stop the event loop; write 'async def'"
    problem = plain_function(what, method)
    twin = getattr(kind, "_async_twin", None)
    if problem and twin and coroutine_function(what, method) is None and name != "healthy":
        problem = f"{problem}, or derive {kind.__qualname__} from leaderq.{twin}"
    return problem


def _wrong_parameters(kind: type, name: str) -> Iterator[str]:
    written = getattr_static(kind, name, None)
    ours = [vars(one)[name] for one in kind.__mro__ if name in dict(_public(one, ours=True))]
    if isfunction(written) and ours:
        wanted = [*signature(ours[0]).parameters]
        try:
            signature(written).bind(*wanted)
        except TypeError:
            call, whole = (f"({', '.join(names)})" for names in (wanted[1:], wanted))
            yield f"{name} of {kind.__qualname__} is called with {call}; write def {name}{whole}"


def _public(one: type, *, ours: bool) -> Iterator[tuple[str, Any]]:
    if (one.__module__.partition(".")[0] == "leaderq") is ours and one is not object:
        yield from ((name, value) for name, value in vars(one).items() if not name.startswith("_"))


def _meant(name: str, value: Any, known: Mapping[str, Any], written: Container[str]) -> str | None:
    """The known name that the user probably meant by ``name``, or ``None``: the same except for
    case and underscores, or a similar one with the same kind of value. A similar name that the
    class also has was not meant.
    """
    same = [one for one in known if _folded(one) == _folded(name)]
    if same:
        return same[0]
    alike = [
        one for one in known if one not in written and _kind(known[one]) in (None, _kind(value))
    ]
    near = get_close_matches(name, alike, n=1, cutoff=0.8) if len(name) > _SHORT else []
    return near[0] if near else None


def _folded(name: str) -> str:
    return name.replace("_", "").lower()


def _kind(value: Any) -> type | None:
    """The kind of a value; ``None`` if any kind is possible, because the value is ``None``."""
    if isroutine(value):
        return type(isroutine)
    return None if value is None else float if isinstance(value, int) else type(value)


def career_name(career: ILeaderCareer | type[ILeaderCareer]) -> str:
    """The name under which a career stands: its ``name``, else its class name in kebab-case."""
    kind = career if isinstance(career, type) else type(career)
    return str(getattr(career, "name", None) or kebab_case(kind.__name__))


def kebab_case(class_name: str) -> str:
    """``ad-billing`` for ``AdBilling``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", class_name).lower()
