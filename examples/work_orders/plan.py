"""Who does what on which day (pure).

Whether a rule fits depends on every order there is. Many allocators would need locks on engineers,
machines and days, or a retry for each conflict. There is only one, so it is a loop.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from .rules import Rule

ENGINEERS = {
    "ada": ("electric",),
    "bob": ("hydraulic", "mechanic"),
    "cid": ("mechanic",),
    "dee": ("electric", "hydraulic"),
}
HOURS_A_DAY = 8
LAST_DAY = 365


@dataclass(frozen=True)
class Order:
    """``engineer`` works on ``machine`` on that ``day``, by that ``rule``. ``term``: who said
    so.
    """

    rule: str
    machine: str
    engineer: str
    day: int
    hours: int
    concern: str
    term: int

    def packed(self) -> bytes:
        """What its znode holds."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, data: bytes) -> Order:
        """Undo :meth:`packed`."""
        return cls(**json.loads(data))


class Plan:
    """All orders there are. An engineer works eight hours a day at most, and on a machine one of
    them a day."""

    def __init__(self, orders: Iterable[Order] = ()) -> None:
        self._hours: Counter[tuple[str, int]] = Counter()
        self._busy: set[tuple[str, int]] = set()
        for order in orders:
            self.add(order)

    def order_for(self, rule: Rule, term: int) -> Order:
        """The soonest that can be had; it is not yet in the plan. Raises ``ValueError`` if none
        can.
        """
        able = [name for name, skills in ENGINEERS.items() if rule.skill in skills]
        if not able:
            raise ValueError(f"nobody is {rule.skill}")
        for day in range(LAST_DAY):
            engineer = min(able, key=lambda name: self._hours[name, day])
            if (rule.machine, day) not in self._busy and self._hours[
                engineer, day
            ] + rule.hours <= HOURS_A_DAY:
                return Order(rule.id, rule.machine, engineer, day, rule.hours, rule.concern, term)
        raise ValueError("the year is full")

    def add(self, order: Order) -> None:
        """This one stands."""
        self._hours[order.engineer, order.day] += order.hours
        self._busy.add((order.machine, order.day))

    def problems(self) -> list[str]:
        """What breaks a constraint."""
        return [
            f"{name} works {hours} hours on day {day}"
            for (name, day), hours in self._hours.items()
            if hours > HOURS_A_DAY
        ]
