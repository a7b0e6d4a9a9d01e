"""``leaderq demo``: watch leadership change hands, and see that nothing is lost or done twice.

Real servers and real candidates handle a steady stream of records through three changes of leader;
the result is audited at the end. ``ad_billing`` in here is a link to ``examples/ad_billing``: the
demo runs the example, not a copy of it.
"""

from __future__ import annotations

from leaderq.base.exits import ExitCode
from leaderq.cli.options import Given, number, switch, verb
from leaderq.cli.output import quiet

_RECORDS = 150_000
_FEWEST = 500  # with fewer, some leader would find nothing to bill


@verb(
    number("--records", "how many records to feed", least=_FEWEST, default=_RECORDS),
    switch("--keep", help="keep the ledger and all logs, and say where"),
)
def demo(given: Given) -> int:
    """Start ZooKeeper, Kafka and three candidates, feed them records, and take the leader away
    three times: by kill -9, by freezing it, and by a transfer.

    The candidates bill clicks into one SQLite ledger. At the end the ledger is compared with what
    was fed: every record must have been billed exactly once, in the order of its partition. The
    demo takes about a minute; the first time, it also fetches the servers.

    Exit codes: 0 everything held, 1 something did not, 2 something is missing on this machine, 130
    interrupted.

    \b
    Examples:
      leaderq demo
      leaderq demo --records 20000 --keep
    """
    quiet()
    from leaderq.cli.demo.show import Show  # brings in everything; --help needs none of it

    outcome = Show(given.records, keep=given.keep).run()
    return ExitCode.FAILED if outcome.problems else ExitCode.OK
