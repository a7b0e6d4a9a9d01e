"""All mutants."""

from __future__ import annotations

from mutants import command, election, running, session

MUTANTS = [*command.MUTANTS, *election.MUTANTS, *running.MUTANTS, *session.MUTANTS]
