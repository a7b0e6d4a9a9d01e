"""How fast the demo feeds (pure): steady, and never dry before the last change of leader is over."""

from __future__ import annotations

from dataclasses import dataclass

_KEPT_BACK = 0.1
_CATCH_UP = 2.0


@dataclass(frozen=True)
class Pace:
    """``records`` spread over ``planned_s`` seconds.

    A tenth is kept back and fed thinly should the changes take longer than planned, so that each of them has records on both
    sides; once they are over, what is left is fed at twice the rate.
    """

    records: int
    planned_s: float

    @property
    def rate(self) -> float:
        """Records a second, as planned."""
        return self.records * (1 - _KEPT_BACK) / self.planned_s

    def due(self, elapsed_s: float, released: tuple[float, int] | None) -> int:
        """How many records should have been fed ``elapsed_s`` after the first.

        ``released``: when the changes were over, and how many were fed by then.
        """
        if released is not None:
            at_s, fed = released
            return min(self.records, fed + 1 + int(_CATCH_UP * self.rate * (elapsed_s - at_s)))
        steady = self.rate * min(elapsed_s, self.planned_s)
        thin = self.rate * _KEPT_BACK * max(0.0, elapsed_s - self.planned_s)
        # The last one waits: after it nothing would show who bills.
        return max(1, min(self.records - 1, 1 + int(steady + thin)))
