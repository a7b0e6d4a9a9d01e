"""The career: the leader turns rules that are due into work orders, the urgent ones first.

Who is authoritative: ZooKeeper. An order is written and its message acknowledged in one multi,
which also checks that ``/work-orders/office`` is as this term has left it. So however a term ends,
a rule has its order and no message, or its message and no order. If two processes believe that they
lead, one of them is refused.
"""

from __future__ import annotations

from leaderq import Deposed, LeaderCareer, Term
from leaderq.dyno import Delivery, StaleLease
from leaderq.errors import BadVersion, NodeExists, NoNode
from leaderq.term import Reason
from leaderq.zookeeper import Check, Create, Session, SetData

from .plan import Order, Plan
from .rules import read, rules_queue

OFFICE = "/work-orders/office"
ORDERS = "/work-orders/orders"


class Allocator(LeaderCareer):
    """Alone, so the plan is in memory and nobody locks a row."""

    def inaugurate(self, term: Term) -> None:
        """Take office, then read what former terms have ordered: they cannot add to it any more."""
        self.session.ensure_path(OFFICE)
        self.session.ensure_path(ORDERS)
        (stat,) = term.write([SetData(OFFICE, b"%d" % term.number)])
        self.office = Check(OFFICE, stat.version)
        self.plan = Plan(orders(self.session))
        self.rules = rules_queue(self.session)

    def execute(self, term: Term) -> None:
        """Allocate the next rules; those not begun are released when the queue is closed."""
        for message in self.rules.pop(20, 0.5, least=1):
            if term.ending.is_set():
                return
            self.allocate(message, term)

    def allocate(self, message: Delivery, term: Term) -> None:
        """One rule: an order, or a dead letter that says why there is none."""
        try:
            order = self.plan.order_for(read(message.id, message.payload), term.number)
        except (ValueError, KeyError, TypeError) as exc:
            message.kill(f"{type(exc).__name__}: {exc}")
            return
        try:
            message.ack([self.office, Create(f"{ORDERS}/{order.rule}", order.packed())])
        except StaleLease:
            return  # the message is not ours any more
        except NodeExists:
            message.ack()  # the same rule was fed again, long after
            return
        except BadVersion as exc:
            raise Deposed(term=term.number, reason=Reason.FENCED) from exc
        self.plan.add(order)

    def handOver(self, term: Term) -> None:  # noqa: N802
        """Release what is still leased; that counts no failure."""
        if hasattr(self, "rules"):
            self.rules.close()


def orders(session: Session) -> list[Order]:
    """All orders there are; none before the first allocator leads."""
    try:
        names = session.children(ORDERS)
    except NoNode:
        return []
    return [Order.read(session.get(f"{ORDERS}/{name}")[0]) for name in names]
