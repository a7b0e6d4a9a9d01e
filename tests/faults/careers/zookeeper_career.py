"""A znode for each range of records, in the multi that stores the offsets.
``offsets="zookeeper"``.
"""

from __future__ import annotations

import json
import os

from paced import Paced

from leaderq import Term
from leaderq.kafka import Record
from leaderq.zookeeper import Create


class Covered(Paced):
    offsets = "zookeeper"

    def do(self, records: list[Record], term: Term) -> None:
        offsets: dict[int, list[int]] = {}
        for row in records:
            offsets.setdefault(row.partition, []).append(row.offset)
        for partition, covered in offsets.items():
            data = json.dumps([partition, covered[0], covered[-1], term.number]).encode()
            # Sequential, so that a repetition makes a second znode instead of an error.
            self.write_with_offsets(
                Create(os.environ["RESULTS"] + "/range-", data, sequential=True)
            )
