"""A nemesis: everything that can go wrong happens to your own career, and checkers say what must
not be.

Three ZooKeeper servers and five candidates (``leaderq run`` under guardians, each behind fault
proxies of its own, restarted when they exit) suffer a random schedule of faults, which a seed
repeats. All processes append to one history, and checkers find in it what must not have happened::

    python -m leaderq.testing.nemesis --minutes 10 --seed 7 --career billing:AdBilling

or, in a test::

    report = run(NemesisOptions(seed=7, career="billing:AdBilling", minutes=3))
    assert not report.violations, report

Each inauguration, unit of work and hand-over of a career is recorded without its help. Let the
career call :func:`effect` where it acts on the world, so that the checkers see how far it came
within a unit; and :func:`fenced_write` where an old term should be refused. Both do nothing outside
of a nemesis.

``docs/design/nemesis.md`` has the faults, the checks, and what is excused. Linux only (``/proc``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaderq.base.lazy import exported

if TYPE_CHECKING:
    from leaderq.testing.nemesis.checkers import NemesisReport as NemesisReport
    from leaderq.testing.nemesis.cluster import NemesisOptions as NemesisOptions
    from leaderq.testing.nemesis.faults import run as run
    from leaderq.testing.nemesis.history import effect as effect
    from leaderq.testing.nemesis.history import fenced_write as fenced_write

_NAMES = {"checkers": "NemesisReport", "cluster": "NemesisOptions", "faults": "run"}
__getattr__, __all__ = exported(__name__, {**_NAMES, "history": "effect fenced_write"})
