"""Edits that change nothing that a program could see, each with its reason. The ids are those that
``python -m mutation`` prints; a test tells of those that are no longer made.
"""

from __future__ import annotations

LAST = "the last statement of its path, which would end there anyway"
BEFORE_FIRST_USE = "it is set again before it is read for the first time"
QUICK_WAY = "a quick way out; the long way gives the same"
UNREAD = "only the other fields of this one are looked at"
IMPLIED = "the other operand implies it"
NUMBER_IS_SHORT = (
    "where the search begins only saves time: a match ends the name, within 11 letters"
)
NOTE_IS_LONG = "no note has so few bytes, and none is read from nothing"
UNCOUNTED = "without a limit nobody looks at sizes"
HEAP_IS_CLEANED = "an entry too many in a heap is dropped when it is read"
PUT_BACK = "what is taken from a heap and not wanted is put back"
ALONG_THE_HEAP = "looks at entries again, or too early; each name counts once, in the heap's order"
PARSED_AGAIN = "the bytes are parsed again afterwards, which says no too"
FINE = "a millionth of a token is allowed because no sum of seconds is exact"
NEVER = "no tick is due in the first millisecond of 1970"
DECLARED = "the declaration of a career gives it always"
ORDER = "it has the same place in the order"
LOGGED = "how many a log line lists"
GIVEN = "a port is always given here"

CACHED = "how many are kept costs time alone"
DERIVED = "it follows from the fields that are compared"

EQUIVALENT: dict[str, str] = {
    "election.layout:09eb9f77": "where there are no candidates, there is nothing to sort",
    "election.layout:d4b85a31": "either number is one that a term may have",
    "election.layout:cd86dd42": LAST,
    "zookeeper.proof:8ff40558": CACHED,
    "zookeeper.proof:5212d588": CACHED,
    "zookeeper.proof:18e17304": DERIVED,
    "zookeeper.proof:883b7136": DERIVED,
    "zookeeper.proof:dbf9e0d4": "only differences of this count matter",
    "election.software:f7227302": "versions that are equal were told before",
    "election.software:001cb0f8": ORDER,
    "election.software:31d2a6d5": ORDER,
    "election.software:65291b8a": ORDER,
    "election.software:7b02ba1f": ORDER,
    "election.software:3f0c6083": ORDER,
    "term:eb9cda0d": IMPLIED,
    "term:a080d2d9": IMPLIED,
    "term:fcf9dab4": "the reason is kept, and the end is told already",
    "zookeeper.paths:10e8dea6": QUICK_WAY,
    "dyno.index:24a53109": HEAP_IS_CLEANED,
    "dyno.index:7f067053": HEAP_IS_CLEANED,
    "dyno.index:ad82cb9a": HEAP_IS_CLEANED,
    "dyno.index:cfafd19a": HEAP_IS_CLEANED,
    "dyno.index:cd36e960": "messages without a group are in no heap of a group",
    "dyno.index:64270275": PUT_BACK,
    "dyno.index:9256863b": PUT_BACK,
    "dyno.index:04003cff": ALONG_THE_HEAP,
    "dyno.index:2f1ee2f4": ALONG_THE_HEAP,
    "dyno.index:93541825": ALONG_THE_HEAP,
    "dyno.index:96dbd32b": ALONG_THE_HEAP,
    "dyno.index:abf416cb": HEAP_IS_CLEANED,
    "dyno.message:b5535e6b": UNREAD,
    "dyno.message:14812ed8": UNREAD,
    "dyno.message:144c7804": "no shard is called by an empty name",
    "queues.wire.names:785166d1": "any number beyond those of ZooKeeper will do",
    "queues.wire.names:309ff141": "any number beyond those of ZooKeeper will do",
    "queues.wire.names:92dea8d9": NUMBER_IS_SHORT,
    "queues.wire.names:daed7e81": NUMBER_IS_SHORT,
    "queues.wire.names:a6e75027": NUMBER_IS_SHORT,
    "queues.wire.names:895e8c82": NUMBER_IS_SHORT,
    "queues.wire.payload:36cbd156": "zlib then looks itself whether it is gzip, which it is",
    "queues.wire.payload:8df3d9b1": NOTE_IS_LONG,
    "queues.wire.payload:1286174a": NOTE_IS_LONG,
    "queues.wire.payload:3d6dcd8b": NOTE_IS_LONG,
    "queues.wire.payload:09311371": NOTE_IS_LONG,
    "queues.wire.payload:8bb01bb2": "one byte too many is enough to refuse it",
    "queues.consuming.pending:6e4173c2": BEFORE_FIRST_USE,
    "queues.consuming.pending:033d6a14": BEFORE_FIRST_USE,
    "queues.consuming.pending:f576f5d6": "the empty listing that follows raises it",
    "queues.consuming.pending:3eff06f3": QUICK_WAY,
    "queues.consuming.pending:595b4acc": QUICK_WAY,
    "queues.consuming.pending:eebc8a7a": QUICK_WAY,
    "queues.consuming.pending:7abe2a44": "of two equal names one is in hand when the other comes",
    "zookeeper.writing.groups:43bfc6fa": "what is alone is the first and the last one",
    "threads.capacity:442f82c8": "whoever waits for no time goes away empty-handed too",
    "kafka.consuming.rate_limit:8cbeb0e7": FINE,
    "kafka.consuming.rate_limit:e89eb9d0": FINE,
    "kafka.consuming.rate_limit:f0319cbd": "beyond the quantum nothing counts",
    "kafka.consuming.rate_limit:40b56ba0": "beyond the quantum nothing counts",
    "kafka.consuming.read_ahead:fb545b46": DECLARED,
    "kafka.consuming.read_ahead:8dd944bd": DECLARED,
    "kafka.consuming.read_ahead:ebce6d23": DECLARED,
    "kafka.consuming.read_ahead:237813fb": "room for none is 0 by the sum too",
    "kafka.consuming.read_ahead:56ccdc5b": UNCOUNTED,
    "kafka.consuming.read_ahead:56813531": UNCOUNTED,
    "kafka.consuming.read_ahead:237e43aa": UNCOUNTED,
    "kafka.consuming.read_ahead:4850f55d": UNCOUNTED,
    "kafka.consuming.read_ahead:5e54046b": "what fits exactly is counted, and still fits",
    "kafka.consuming.read_ahead:084335f4": "what was left out was so because no more was wanted",
    "kafka.handling.on_error:7e28bdc8": BEFORE_FIRST_USE,
    "kafka.handling.on_error:fb968083": BEFORE_FIRST_USE,
    "kafka.handling.on_error:f74cccc1": BEFORE_FIRST_USE,
    "kafka.handling.on_error:b328423c": "the error is forgotten, and the keys with the next one",
    "kafka.handling.crash_marks:4f10955b": "nothing is left either way",
    "kafka.handling.crash_marks:ccda0c23": BEFORE_FIRST_USE,
    "kafka.handling.crash_marks:9c9f85ff": BEFORE_FIRST_USE,
    "kafka.handling.crash_marks:fffc62a0": LOGGED,
    "kafka.handling.crash_marks:f468af4d": LOGGED,
    "kafka.record:09e15237": "what is equal is so from both sides",
    "producing.journal.records:2a36b1be": "two marks do not overlap",
    "producing.journal.records:7986a946": "nothing is read at the end, and nothing found in it",
    "producing.journal.records:af518d73": "reads more than it needs",
    "producing.journal.records:20cf3f3e": "reads more than it needs",
    "producing.journal.records:7acba45a": "ids begin at 1",
    "producing.journal.records:0b9fd35d": "ids begin at 1",
    "producing.journal.records:2b5fc1c9": PARSED_AGAIN,
    "producing.journal.records:a84720b3": PARSED_AGAIN,
    "producing.journal.records:da34e6c9": PARSED_AGAIN,
    "producing.request:963d1187": "the usual type is only found sooner",
    "running.supervision:86087973": "an equal time takes the place of an equal one",
    "config.kinds:e373690a": GIVEN,
    "config.kinds:ba5a93ab": GIVEN,
    "schedules.plan:6f95b9ca": NEVER,
    "schedules.plan:5cc2273e": NEVER,
    "threads.listeners:f23ebe13": "a type alias",
    "running.watchdog:06d83baa": "while it is stopped, nobody asks when it last was thawed",
}
