"""The fencing token: a career and the number of one of its terms. It can be read from text and
written as text, and an older one is refused.

The text is a structured field value (RFC 9651), an Integer with one parameter::

    42;career="billing"

HTTP sends it as a header, S3 keeps it in an object's metadata. A career whose name is not plain
ASCII is written as a Display String. A reader ignores parameters that it does not know.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote_to_bytes

from leaderq.async_term import AsyncTerm
from leaderq.base.arguments import Problem, is_text, require, wanted
from leaderq.errors import ConfigurationError, Deposed, Reason
from leaderq.term import OpenTerm

log = logging.getLogger(__name__)

MAX_NUMBER = 2**63 - 1
"""The highest number of a term that can be compared: what a BIGINT holds."""
MAX_TEXT_NUMBER = 10**15 - 1
"""The highest number that can be text: what an Integer of RFC 9651 holds."""
_LONGEST_NAME = 255

_STRING = r'"(?:[ !#-\[\]-~]|\\["\\])*"'
_DISPLAY_STRING = r'%"(?:[ !#$&-~]|%[0-9a-f]{2})*"'
_OTHER_VALUES = (
    r"-?[0-9]{1,15}|-?[0-9]{1,12}\.[0-9]{1,3}|[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*"
    r"|:[A-Za-z0-9+/=]*:|\?[01]|@-?[0-9]{1,15}"
)
_PARAMETER = re.compile(
    rf"; *([a-z*][a-z0-9_.*-]*)(?:=({_STRING}|{_DISPLAY_STRING}|{_OTHER_VALUES}))?"
)
_ITEM = re.compile(rf" *([0-9]{{1,15}})((?:{_PARAMETER.pattern})*) *")


class TermLike(Protocol):
    """What is compared: a term, or a :class:`FencingToken`."""

    @property
    def career(self) -> str: ...
    @property
    def number(self) -> int: ...


@dataclass(frozen=True)
class FencingToken:
    """The number of a term and its career, where the term itself is not at hand: in the service
    that receives it, or in a command that ``leaderq lead`` has started.

    :raises ConfigurationError: the career is not a name of 1 to 255 characters, or the number is
      not one of 1 to 2**63 - 1.
    """

    career: str
    number: int

    def __post_init__(self) -> None:
        check_comparable(self)

    @classmethod
    def read(cls, text: object) -> FencingToken:
        """Return the token that ``text`` describes.

        :raises ConfigurationError: ``text`` is not a token.
        """
        if isinstance(text, str) and (found := _ITEM.fullmatch(text)):
            values = dict(_PARAMETER.findall(found[2]))  # of several the last one counts
            career = _name_in(values.get("career", ""))
            if career is not None:
                return cls(career, int(found[1]))
        shape = "a number and a career, such as '42;career=\"billing\"'"
        raise ConfigurationError(f"{text!r:.100} is not {shape}")


def check_comparable(term: TermLike) -> None:
    """Return if ``term`` can be compared.

    :raises ConfigurationError: its number is a text, a bool, below 1 or above 2**63 - 1, or its
      career is not a name.
    """
    number: object = term.number
    is_one = isinstance(number, int) and not isinstance(number, bool)
    require(
        wanted("number", number, is_one and 1 <= term.number <= MAX_NUMBER, _NUMBERS),
        name_problem("career", term.career),
    )


_NUMBERS = f"the number of a term, 1 to {MAX_NUMBER}"


def name_problem(what: str, value: object) -> Problem:
    """Check that ``value`` is a name that every store can keep: text of 1 to 255 characters, none
    of them NUL.
    """
    holds = is_text(value) and "\0" not in str(value) and 1 <= len(str(value)) <= _LONGEST_NAME
    return wanted(what, value, holds, f"a text of 1 to {_LONGEST_NAME} characters")


def token_text(term: TermLike) -> str:
    """Return ``term`` as text.

    :raises ConfigurationError: ``term`` cannot be compared, or its number has more than 15 digits.
    """
    check_comparable(term)
    remedy = f"a number of up to {MAX_TEXT_NUMBER}, which is what a structured field value holds"
    require(wanted("number", term.number, term.number <= MAX_TEXT_NUMBER, remedy))
    return f"{term.number};career={_as_value(term.career)}"


def refused(term: TermLike, newest: TermLike, where: str) -> Deposed:
    """End ``term``, and return the error for its write to ``where``, which has seen ``newest``, a
    newer term.
    """
    log.warning(
        "write of an older term refused where=%r career=%s term=%d newest=%d",
        *(where, term.career, term.number, newest.number),
    )
    held = term._term if isinstance(term, AsyncTerm) else term
    if isinstance(held, OpenTerm):
        held.wind_up(Reason.FENCED)
    remedy = f"leaderq raise-floor {newest.number + 1} --career {term.career}"
    return Deposed(
        term=term.number,
        reason=Reason.FENCED,
        newest=newest.number,
        where=f"{where} has seen term {newest.number} of career {term.career!r}. Undo what was"
        f" begun in term {term.number}. If ZooKeeper was set up again, and numbers began at 1 once"
        f" more: {remedy}",
    )


def judge(term: TermLike, newest: TermLike | None, where: str) -> None:
    """Return if ``where`` accepts a write of ``term``; ``newest`` is the highest term that it has
    seen.

    :raises Deposed: ``newest`` is higher.
    :raises ConfigurationError: ``newest`` is of another career.
    """
    if newest is None:
        return
    if newest.career != term.career:
        raise ConfigurationError(
            f"{where} belongs to career {newest.career!r}, and the numbers of career"
            f" {term.career!r} cannot be compared with its; give each career a resource of its own"
        )
    if newest.number > term.number:
        raise refused(term, newest, where)


def _as_value(name: str) -> str:
    if name.isascii() and name.isprintable():
        return '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'
    plain = (0x20 <= one <= 0x7E and one not in b'%"' for one in name.encode())
    pairs = zip(name.encode(), plain, strict=True)
    return '%"' + "".join(chr(one) if fits else f"%{one:02x}" for one, fits in pairs) + '"'


def _name_in(value: str) -> str | None:
    if value.startswith('"'):
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    if not value.startswith('%"'):
        return None
    try:
        return unquote_to_bytes(value[2:-1]).decode()
    except UnicodeDecodeError:
        return None
