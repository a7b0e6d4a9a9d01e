"""The whole program in simulated time: many lives a second, and the same life for the same seed.

``acted`` may be imported anywhere; the rest needs ``leaderq[simulation]``.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from leaderq.base.lazy import exported
from leaderq.errors import MissingPiece

if TYPE_CHECKING:
    from leaderq.testing.simulation.acting import acted as acted
    from leaderq.testing.simulation.careers import LifeFailed as LifeFailed
    from leaderq.testing.simulation.careers import SimulationReport as SimulationReport
    from leaderq.testing.simulation.careers import simulate as simulate

_load, __all__ = exported(
    __name__, {"acting": "acted", "careers": "LifeFailed SimulationReport simulate"}
)


def __getattr__(name: str) -> Any:
    if name in __all__ and name != "acted" and find_spec("greenlet") is None:
        raise MissingPiece("simulated lives need greenlet: pip install 'leaderq[simulation]'")
    return _load(name)
