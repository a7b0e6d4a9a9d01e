"""What the ensemble does with each request, and the rules that it must never see broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leaderq.election.decision import Decision, Input, Role, step
from model.search import Violated
from model.state import Draft, Kind, Mark, Node, Request


@dataclass(frozen=True)
class Program:
    """The program's part: the table, the lease, and where it goes beyond both.

    A negative control changes one of these.
    """

    decide: Callable[[Role, Input], Decision] = step
    # The lease is renewed from the time at which the write was sent.
    from_answer: bool = False
    # A unit begins only after a look at the clock.
    looks_before_unit: bool = True
    # A claim whose answer was lost is found in the record, and confirmed.
    confirms: bool = True
    # A claim writes the record of its term.
    records: bool = True
    # A znode is mine by its mark and by its session.
    compares_session: bool = True
    # The term is told before a session is given up.
    tells_first: bool = True
    # A timed look backs each watch.
    looks_by_time: bool = True


def carried_out(rules: Any, draft: Draft, who: int, request: Request) -> Any:
    """Carry out ``request`` of the candidate ``who``, in the world and for the program of the model
    ``rules``; returns the reply.
    """
    return _REQUESTS[request.kind](rules, draft, who, request)


def _enlist(rules: Any, draft: Draft, who: int, request: Request) -> int:
    one = draft.candidates[who]
    stands = any(each.who == who and each.mark == Mark.PRESENT for each in draft.line)
    if not request.awaited or request is one.overdue:
        stands = False  # the list was read before: only the creation is carried out now
    else:
        draft.remove(lambda node: node.who == who and node.mark == Mark.LEFT)
    if not stands:
        made = Node(draft.unused_node(), one.session, who, request.mark)
        draft.line = (*draft.line, made)
    return Input.ENLISTED.value


def _look(rules: Any, draft: Draft, who: int, request: Request) -> tuple[Any, ...]:
    own = [each for each in draft.line if each.who == who and each.mark == Mark.PRESENT]
    if not own or request.mark == Mark.LEFT:
        return (0, 0, draft.record, 0)
    surplus = {each.id for each in own[1:]}
    if surplus:
        draft.remove(lambda node: node.id in surplus)
    at = draft.line.index(own[0])
    ahead = draft.line[at - 1].id if at else 0
    return (own[0].id, ahead, draft.record, own[0].session)


def _watch(rules: Any, draft: Draft, who: int, request: Request) -> int:
    if request.node not in draft.standing():
        return Input.CHANGED.value
    draft.candidates[who].watching = request.node
    return Input.BEHIND.value


def _claim(rules: Any, draft: Draft, who: int, request: Request) -> int:
    if not rules.world.passes(request.node, draft.standing()):
        return Input.BEATEN.value
    if request.seen[1] == request.node and rules.program.confirms:
        return Input.WON.value
    if not rules.world.is_version(request.seen, draft.record):
        return Input.BEATEN.value
    if draft.record[1] == request.node:
        raise Violated("a claim that had been carried out is made a second time")
    if rules.program.records:
        draft.record = (draft.record[0] + 1, request.node, False)
    return Input.WON.value


def _leave(rules: Any, draft: Draft, who: int, request: Request) -> int:
    draft.remove(lambda node: node.who == who and node.mark != Mark.FORGOTTEN)
    return Input.RELEASED.value


def _release(rules: Any, draft: Draft, who: int, request: Request) -> int:
    if request.node in draft.standing():
        _must_be_newest(draft, request.seen[0], "the end of an old term is recorded")
        draft.record = (draft.record[0], draft.record[1], True)
        draft.remove(lambda node: node.id == request.node)
    return Input.RELEASED.value


def _renew(rules: Any, draft: Draft, who: int, request: Request) -> int:
    stands = rules.world.passes(request.node, draft.standing())
    return (Input.HEARD if stands else Input.GONE).value


def _write(rules: Any, draft: Draft, who: int, request: Request) -> int:
    if not rules.world.passes(request.node, draft.standing()):
        return Input.FENCED.value
    _must_be_newest(draft, request.seen[0], "a fenced write of an old term passes")
    return Input.HEARD.value


def _must_be_newest(draft: Draft, number: int, what: str) -> None:
    if draft.begun > number or draft.record[0] > number:
        raise Violated(what)


_REQUESTS: dict[int, Callable[[Any, Draft, int, Request], Any]] = {
    Kind.ENLIST: _enlist,
    Kind.LOOK: _look,
    Kind.WATCH: _watch,
    Kind.CLAIM: _claim,
    Kind.LEAVE: _leave,
    Kind.RELEASE: _release,
    Kind.RENEW: _renew,
    Kind.WRITE: _write,
}
