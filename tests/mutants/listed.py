"""All mutants."""

from __future__ import annotations

from mutants import command, election, helpers, running, session

MUTANTS = [
    *command.MUTANTS,
    *election.MUTANTS,
    *helpers.MUTANTS,
    *running.MUTANTS,
    *session.MUTANTS,
]
