from collections.abc import Iterable
from typing import Any

class RangePartitionAssignor:
    name: str
    def metadata(self, topics: Iterable[str]) -> Any: ...
