"""All mutants."""

from __future__ import annotations

from mutants import election, running, session

MUTANTS = [*election.MUTANTS, *running.MUTANTS, *session.MUTANTS]
