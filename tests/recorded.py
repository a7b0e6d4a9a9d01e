"""What the careers of ``acceptance/careers/recorder.py`` have written down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class History:
    """The lines that recorder careers wrote, of all processes, in the order of their clock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self, what: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        texts = self.path.read_text().splitlines()
        found = [json.loads(text) for text in texts if text.endswith("}")]
        wanted = {**fields, **({"what": what} if what else {})}
        matching = [line for line in found if wanted.items() <= line.items()]
        return sorted(matching, key=lambda line: line["at"])

    def overlap_s(self) -> float:
        """The longest time for which one term was believed in after a later one had begun; 0 or
        less is what must be.
        """
        worst = float("-inf")
        for begun in self.lines("inaugurate"):
            later = [line for line in self.lines("believed") if line["term"] < begun["term"]]
            worst = max([worst, *(line["at"] - begun["at"] for line in later)])
        return worst
