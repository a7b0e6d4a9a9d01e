"""The demo's folder: ledger and logs, thrown away at the end unless somebody will want to look at them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from leaderq.testing.scratch import ScratchFolder


class DemoFolder:
    """A temporary folder; :meth:`close` removes it, or moves it to where no sweeper of abandoned folders will find it."""

    def __init__(self) -> None:
        self._scratch = ScratchFolder("demo")
        self.path = self._scratch.path

    @property
    def ledger(self) -> Path:
        """The SQLite ledger."""
        return self.path / "ledger.sqlite3"

    def take_in(self, logs: Iterable[Path]) -> None:
        """Copy ``logs`` into the folder."""
        for log in logs:
            if log.exists():
                shutil.copy(log, self.path / log.name)

    def close(self, *, keep: bool) -> Path | None:
        """Remove the folder; or keep it, if anything is in it, and give where it is now."""
        kept = None
        if keep and any(path.name != ".owner" for path in self.path.iterdir()):
            kept = Path(tempfile.mkdtemp(prefix="leaderq-demo-"))
            shutil.copytree(self.path, kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".owner"))
        self._scratch.remove()
        return kept
