"""How much a writer has under way: what keeps the servers busy, and little more (pure).

Whoever else writes to the servers waits for what we have under way; with too little of it, the
servers wait for us. How much is right follows from the servers, the network and the items. So it is
measured, much as TCP Vegas does. Up to a certain amount answers take as long as ever, and there are
more of them. Beyond it, where the servers are busy, there are no more of them and each takes
longer. The limit is where an answer takes ``SLOWER`` times as long as with the least under way.

How long it takes with the least is measured first, and again every ``ANEW_S`` seconds, because
servers change, and because somebody else's work may have been in front of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

LEAST_BYTES = 32 * 1024
"""Under way in any case; the limit grows from there."""
MOST_BYTES = 4 << 20
"""The servers must keep them in memory, however quick they are."""
SLOWER = 2.5
MEASURED = 5
"""Answers with the least under way, of which the median counts: some come late by chance."""
SHARE = 0.25
"""By how much the limit moves to what one answer says, for the same reason."""
ANEW_S = 10.0


@dataclass(frozen=True, slots=True)
class InFlightLimit:
    """A writer's limit, and what was measured. Times are seconds of one clock."""

    size: float = LEAST_BYTES
    """Nothing more is sent while that many bytes are under way."""
    with_least_s: tuple[float, ...] = ()
    """What answers took with the least under way, the first ``MEASURED`` of them."""
    began_s: float = 0.0
    """When this measurement began."""

    def after(self, sent_s: float, answered_s: float, under_way: float) -> InFlightLimit:
        """The limit after one more answer. ``under_way``: the bytes when its request was sent,
        with that request.

        From both follows how many bytes would be answered as quickly as they should be. If less
        than half the limit was under way, nothing follows.
        """
        if under_way < self.size / 2:
            return self
        took_s, known = max(answered_s - sent_s, 1e-9), self.with_least_s
        if not known or answered_s - self.began_s > ANEW_S:
            return InFlightLimit(with_least_s=(took_s,), began_s=answered_s)
        if len(known) < MEASURED:
            return replace(self, with_least_s=(*known, took_s))
        allowed_s = SLOWER * sorted(known)[MEASURED // 2]
        fitting = under_way * min(2.0, max(0.5, allowed_s / took_s))
        size = self.size + SHARE * (fitting - self.size)
        return replace(self, size=min(float(MOST_BYTES), max(float(LEAST_BYTES), size)))
