"""How much memory a career takes at the defaults when its records are large, in a process of its
own.

Nothing may wait there for Python's garbage collector, which looks seldom where few objects are
made; so it is switched off.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from leaderq.kafka.topics import create_topics, produce

RECORDS, RECORD_BYTES = 400, 900_000
"""360 MB: more than the process may take, were all of it held."""
MOST_MB = 250

CAREER = """
import gc, re, sys, time
from pathlib import Path
from driving import Driver, Recorder, given
from leaderq.zookeeper import connect

gc.disable()
kafka, zookeeper, topic, root, client, workers, count = sys.argv[1:]

class Slow(Recorder):
    topics, handled = topic, 0

    def handle(self, records, term):
        time.sleep(0.15)  # so that as much is read ahead as ever is
        for record in records:
            self.handled += len(record.value) > 0

Slow.client, Slow.workers = client, int(workers)
with connect(zookeeper) as session:
    career = given(Slow(), session, "me", kafka=kafka, career=topic, root=root)
    career.prepare()
    leader = Driver(career).begin()
    leader.run_until(lambda: career.handled >= int(count))
    leader.end()
    career.retire()
# Not ru_maxrss, which begins with what the process that started this one had.
print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


@pytest.mark.parametrize(
    ("client", "workers"),
    [("kafka-python", "1"), ("confluent", "1"), ("kafka-python", "8")],  # 8 read more ahead
    ids=["kafka-python", "confluent", "workers"],
)
def test_large_records_take_a_bounded_amount_of_memory(
    kafka_broker, zookeeper_server, topic_name, znode_root, client, workers
):
    create_topics(kafka_broker.address, {topic_name: 32})
    produce(
        kafka_broker.address, topic_name, ((b"%d" % n, b"x" * RECORD_BYTES) for n in range(RECORDS))
    )
    places = [kafka_broker.address, zookeeper_server.address, topic_name, znode_root]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CAREER, *places, client, workers, str(RECORDS)],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < MOST_MB
