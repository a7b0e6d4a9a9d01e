"""How often a record may be handled: the career's ``delivery``, fitted to where its offsets are
kept. Pure.

A delivery names the least that is needed; a store that gives more is accepted. Per store, the
default marked with ``*``, and the order of saving and work:

=================  =================  ==============================================================================
store              delivery           order, and what a crash in between costs
=================  =================  ==============================================================================
``"kafka"``        at_most_once       save, then handle: what was in hand is never handled
``"kafka"``        at_least_once *    handle, then save: what was in hand is handled again
``"zookeeper"``    at_most_once       save, then handle: what was in hand is never handled
``"zookeeper"``    at_least_once      as exactly_once
``"zookeeper"``    exactly_once *     handle, then save together with the operations that ``handle`` gave along: for these,
                                      nothing; any other effect of ``handle`` happens again
``"transaction"``  at_least_once      as exactly_once
``"transaction"``  exactly_once *     handle and produce, then commit offsets and what was produced in one transaction: for
                                      readers with ``read_committed``, nothing
``"external"``     at_least_once      as exactly_once
``"external"``     exactly_once *     ``handle`` stores result and offset in one transaction of its own: nothing
=================  =================  ==============================================================================

Refused: *exactly once* with ``"kafka"``, where saving and work are two steps with a crash possible
between them; *at most once* with ``"transaction"`` and ``"external"``, where offset and result are
stored together, so nothing can be saved first.
"""

from __future__ import annotations

from dataclasses import dataclass

from leaderq.errors import ConfigurationError

AT_MOST_ONCE = "at_most_once"
AT_LEAST_ONCE = "at_least_once"
EXACTLY_ONCE = "exactly_once"
DELIVERIES = (AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE)

_ACCEPTED = {
    "kafka": (AT_LEAST_ONCE, AT_MOST_ONCE),
    "zookeeper": (EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE),
    "transaction": (EXACTLY_ONCE, AT_LEAST_ONCE),
    "external": (EXACTLY_ONCE, AT_LEAST_ONCE),
}
"""What each store can do; the default first."""

_REMEDIES = {
    ("kafka", EXACTLY_ONCE): (
        "offsets='kafka' saves and handles in two steps, and a crash may fall between; use offsets='transaction', "
        "'zookeeper' or 'external', or delivery='at_least_once' with a handle that may be repeated"
    ),
    ("transaction", AT_MOST_ONCE): (
        "offsets='transaction' stores offsets and results together, never offsets first; use offsets='kafka', "
        "or leave delivery out"
    ),
    ("external", AT_MOST_ONCE): (
        "offsets='external' leaves it to handle() to store offsets and results together, never offsets first; use "
        "offsets='kafka', or leave delivery out"
    ),
}


@dataclass(frozen=True)
class Delivery:
    """A delivery that its store can keep. ``saves_first``: offsets are saved before the work
    begins, not after.
    """

    name: str
    store: str
    saves_first: bool


def delivery_of(delivery: str | None, store: str, where: str) -> Delivery:
    """How the class ``where`` delivers: what it declares (``None``: the default of its store).

    Raises :class:`~leaderq.errors.ConfigurationError` if the store cannot do that, or a name is
    unknown.
    """
    problems = [
        None if store in tuple(_ACCEPTED) else f"offsets={store!r} of {where} is not known; use {_listed(tuple(_ACCEPTED))}",
        None
        if delivery in (None, *DELIVERIES)
        else f"delivery={delivery!r} of {where} is not known; use {_listed(DELIVERIES)}, or leave it out",
    ]
    if found := [problem for problem in problems if problem]:
        raise ConfigurationError(*found)
    name = _ACCEPTED[store][0] if delivery is None else delivery
    if name not in _ACCEPTED[store]:
        raise ConfigurationError(f"delivery={name!r} of {where} contradicts its offsets: {_REMEDIES[store, name]}")
    return Delivery(name, store, saves_first=name == AT_MOST_ONCE)


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(map(repr, names[:-1]))} or {names[-1]!r}"
