"""A nemesis: everything that can go wrong, mixed, against your own career; and what must hold.

Three ZooKeeper servers and five candidates (``leaderq run`` under guardians, each behind fault
proxies of its own, restarted by a supervisor when they exit) suffer a random schedule of faults,
which a seed repeats: processes killed and frozen, the GIL held, networks cut in either direction,
replies lost, sessions ended, servers killed, frozen and restarted, operators with wishes. All
processes append to one history, and checkers say what in it must not be::

    python -m leaderq.testing.nemesis --minutes 10 --seed 7 --career billing:AdBilling

or, in a test::

    report = run(NemesisOptions(seed=7, minutes=3, career="billing:AdBilling"))
    assert not report.violations, report

Without ``career`` the nemesis brings a rude one of its own: units of a millisecond and units that
outlive the lease, child processes that act on, code that ignores SIGTERM, and all of it without a
look at the term. Each inauguration, unit of work and hand-over of a career is recorded without its
help. Have it call :func:`effect` where it acts on the world, so that the checkers see how far into
a unit it came, and :func:`fenced_write` where it should be refused. Both do nothing outside of a
nemesis.

*Checked:* accepted fenced writes never fall back to an older term; no effect of a term follows the
next one's inauguration; a leader again within T + 2 s of healing; no unit of work begins while an
operator's pause stands; nobody is left behind; threads, descriptors and memory stay flat.
What is exempt, and why: ``docs/design/nemesis.md``. Linux only, because of ``/proc``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leaderq.testing.nemesis.checkers import NemesisReport
    from leaderq.testing.nemesis.cluster import NemesisOptions
    from leaderq.testing.nemesis.faults import run
    from leaderq.testing.nemesis.history import effect, fenced_write

__all__ = ["NemesisOptions", "NemesisReport", "effect", "fenced_write", "run"]

_HOMES = {
    "NemesisOptions": "cluster",
    "NemesisReport": "checkers",
    "effect": "history",
    "fenced_write": "history",
    "run": "faults",
}


def __getattr__(name: str) -> Any:  # a worker loads what it needs, not what runs the nemesis
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
