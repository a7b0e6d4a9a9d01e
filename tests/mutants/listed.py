"""All mutants."""

from __future__ import annotations

from mutants import command, election, producing, running, session

MUTANTS = [
    *command.MUTANTS,
    *election.MUTANTS,
    *producing.MUTANTS,
    *running.MUTANTS,
    *session.MUTANTS,
]
