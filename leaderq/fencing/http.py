"""Fencing a service that is called over HTTP: the header ``Leaderq-Term``, for the side that sends
it and the side that receives it.

The leader sends its number and career with each request (:func:`term_header`). The service keeps
the highest one per resource and compares (:func:`judge_header`). The service is authoritative.
Where it refuses, it answers 412 with the same header, which then names the newer term, and the
leader's side raises :class:`~leaderq.errors.Deposed` (:func:`check_response`).

The service must compare, act and store the number in *one* step: in one transaction
(:class:`~leaderq.fencing.SqlFence` accepts the token that :meth:`FencingToken.read` returns), or
under one lock. A service that compares first and acts later lets an older term through.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple, Protocol

from leaderq.errors import ConfigurationError
from leaderq.fencing.fencing_token import FencingToken, TermLike, refused, token_text

HEADER = "Leaderq-Term"


class Ruling(Enum):
    """What the receiving side says of a request; ``status`` is the HTTP status to answer with."""

    _value_: str
    status: int

    def __new__(cls, word: str, status: int) -> Ruling:
        ruling = object.__new__(cls)
        ruling._value_, ruling.status = word, status
        return ruling

    ACCEPTED = "accepted", 200
    OLDER = "a newer term has written", 412
    OTHER_CAREER = "the resource belongs to another career", 409
    MISSING = "the request has no term", 428
    UNREADABLE = "the term of the request cannot be read", 400


class Judgement(NamedTuple):
    """The ruling on one request.

    ``newest``: the token to store as the highest, in the same step that carries out the request;
    unchanged if the request is refused. ``headers``: the headers to answer with.
    """

    ruling: Ruling
    newest: FencingToken | None

    @property
    def is_accepted(self) -> bool:
        return self.ruling is Ruling.ACCEPTED

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.is_accepted or self.newest is None else term_header(self.newest)


class AnswerHeaders(Protocol):
    """The headers of an answer: a mapping, or the headers object of ``http.client``."""

    def items(self) -> Iterable[tuple[str, Any]]: ...


def term_header(term: TermLike) -> dict[str, str]:
    """The header to send with each request: its name and its value.

    :raises ConfigurationError: the number of the term has more than 15 digits, or cannot be
        compared.
    """
    return {HEADER: token_text(term)}


def judge_header(value: str | None, newest: FencingToken | None) -> Judgement:
    """Decide whether to carry out a request. ``value`` is its header ``Leaderq-Term``, ``None`` if
    it has none. ``newest`` is the highest token stored for the resource, ``None`` if there is none
    yet.

    Pure. Guarantees: the same number and career again are accepted, a lower number is not, and what
    is stored never falls. A header that was sent twice is unreadable.
    """
    if value is None:
        return Judgement(Ruling.MISSING, newest)
    try:
        token = FencingToken.read(value)
    except ConfigurationError:
        return Judgement(Ruling.UNREADABLE, newest)
    if newest is not None and newest.career != token.career:
        return Judgement(Ruling.OTHER_CAREER, newest)
    if newest is not None and newest.number > token.number:
        return Judgement(Ruling.OLDER, newest)
    return Judgement(Ruling.ACCEPTED, token)


def check_response(
    term: TermLike, status: int, headers: AnswerHeaders, *, where: str = "the service"
) -> None:
    """Raise ``Deposed`` if the answer to a request says that a newer term has written.

    An answer says so only if its status is 412 and its ``Leaderq-Term`` is a higher number of the
    same career. The caller must look for everything else that may be wrong with the answer.
    ``where`` is named in the error.

    :raises Deposed: a newer term has written. The term is over from now on.
    """
    value = next((text for name, text in headers.items() if name.lower() == HEADER.lower()), None)
    if status != Ruling.OLDER.status:
        return
    try:
        newest = FencingToken.read(value)
    except ConfigurationError:
        return
    if newest.career == term.career and newest.number > term.number:
        raise refused(term, newest, where)
