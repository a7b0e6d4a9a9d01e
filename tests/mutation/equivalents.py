"""Edits that change nothing that a program could see, each with its reason. The ids are those that
``python -m mutation`` prints; a test tells of those that are no longer made.
"""

from __future__ import annotations

# The module, the edits in it, and the reason.
_TABLE = """
election.layout 09eb9f77: where there are no candidates, there is nothing to sort
election.layout d4b85a31: either number is one that a term may have
election.layout cd86dd42: the last statement of its path, which would end there anyway
zookeeper.proof 8ff40558 5212d588: how many are kept costs time alone
zookeeper.proof 18e17304 883b7136: it follows from the fields that are compared
zookeeper.proof dbf9e0d4: only differences of this count matter
election.software f7227302: versions that are equal were told before
election.software 001cb0f8 31d2a6d5 65291b8a 7b02ba1f 3f0c6083: it has the same place in the order
term eb9cda0d a080d2d9: the other operand implies it
term fcf9dab4: the reason is kept, and the end is told already
zookeeper.paths 10e8dea6: a quick way out; the long way gives the same
queues.wire.names 785166d1 309ff141: any number beyond those of ZooKeeper will do
queues.wire.names 92dea8d9 daed7e81 a6e75027 895e8c82: where the search begins only saves time: a
  match ends the name, within 11 letters
queues.wire.payload 36cbd156: zlib then looks itself whether it is gzip, which it is
queues.wire.payload 8df3d9b1 1286174a 3d6dcd8b 09311371: no note has so few bytes, and none is read
  from nothing
queues.wire.payload 8bb01bb2: one byte too many is enough to refuse it
dyno.index cfafd19a: an entry too many in a heap is dropped when it is read
dyno.index d9490f3a: messages without a group are in no heap of a group
engine.due_order b17b3d97 7e948a6e: what is taken from a heap and not wanted is put back
engine.due_order 05d1a58c: an entry is longer than a sort key, and never equal to one
engine.due_order f863929a f3119437 e3cb6e17 8324f26d: looks at entries again, or too early; each
  name counts once, in the heap's order
engine.due_order 8ebd1594: two entries that are equal have one name
engine.due_order 90e5c60b c2845700: an entry too many in a heap is dropped when it is read
queues.consuming.pending 79f1f8ea: where a name of the share waits, there is a first entry
queues.consuming.pending 3d65b1fa: the first has the highest number
queues.consuming.pending 2752e99c d02cc10f: any time before the first listing will do
queues.consuming.pending 237eed9d e351a250: no number is below 0
queues.consuming.pending 3b73abd8: every number is in a share of one
queues.consuming.pending b10f026a: only the key is returned
threads.capacity 442f82c8: whoever waits for no time goes away empty-handed too
kafka.consuming.rate_limit 8cbeb0e7 e89eb9d0: a millionth of a token is allowed because no sum of
  seconds is exact
kafka.consuming.rate_limit f0319cbd 40b56ba0: beyond the quantum nothing counts
kafka.consuming.read_ahead fb545b46 8dd944bd ebce6d23: the declaration of a career gives it always
kafka.consuming.read_ahead 237813fb: room for none is 0 by the sum too
kafka.consuming.read_ahead 56ccdc5b 56813531 237e43aa 4850f55d: without a limit nobody looks at
  sizes
kafka.consuming.read_ahead 5e54046b: what fits exactly is counted, and still fits
kafka.consuming.read_ahead 084335f4: what was left out was so because no more was wanted
kafka.handling.on_error 3a574522 edd43229 62e108c4: it is set again before it is read for the first
  time
kafka.handling.crash_marks 4f10955b: nothing is left either way
kafka.handling.crash_marks ccda0c23 9c9f85ff: it is set again before it is read for the first time
kafka.handling.crash_marks fffc62a0 f468af4d: how many a log line lists
kafka.record 09e15237: what is equal is so from both sides
producing.journal.records 2a36b1be: two marks do not overlap
producing.journal.records 7507d1ca: ids begin at 1
producing.journal.records 598c10ed: nothing is read at the end, and nothing found in it
producing.journal.records ce33855e: the bytes are parsed again, which says no too
producing.journal.records fa082f0e: the checksum says of every id whether it is one
producing.journal.records 4c7c90e9: a window is larger in any case
producing.journal.records 1c5d91ff: behind the end there are zeros, and no record
producing.request 963d1187: the usual type is only found sooner
running.supervision 86087973: an equal time takes the place of an equal one
config.kinds 743f93bb: a port is always given here
schedules.plan 6f95b9ca 5cc2273e: no tick is due in the first millisecond of 1970
running.watchdog 06d83baa: while it is stopped, nobody asks when it last was thawed
"""


def _ids(table: str) -> set[str]:
    said = [line.partition(":")[0].split() for line in table.replace("\n  ", " ").splitlines()]
    return {f"{module}:{id}" for module, *ids in filter(None, said) for id in ids}


EQUIVALENT = _ids(_TABLE)
