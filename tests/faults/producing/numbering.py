"""A process that sends numbers, written ahead, until it is killed: ``python numbering.py ADDRESS
TOPIC JOURNAL``.

It writes each number to its standard output once ``send`` has returned for it, and a line ``state``
when the state changes; it goes on from the number on its standard input.
"""

from __future__ import annotations

import os
import sys

from leaderq.producing import EVERY_ITEM, BufferedProducer, BufferState, KafkaSink, Retry

KEYS = 5


def main() -> None:
    address, topic, journal = sys.argv[1:]
    number = int(sys.stdin.readline())
    producer = BufferedProducer(
        KafkaSink(address, topic, open_timeout_s=1.0),
        key=lambda request: request[0],
        journal=journal,
        persistence=EVERY_ITEM,
        max_items=200,
        sink_timeout_s=0.5,
        retry=Retry(),
    )
    state = BufferState.DIRECT
    while True:
        producer.send((b"key-%d" % (number % KEYS), b"%d" % number))
        os.write(1, b"%d\n" % number)
        if producer.state is not state:
            state = producer.state
            os.write(1, b"state %s\n" % state.value.encode())
        number += 1


if __name__ == "__main__":
    main()
