"""All mutants."""

from __future__ import annotations

from mutants import command, election, queues, running, session

MUTANTS = [*command.MUTANTS, *election.MUTANTS, *queues.MUTANTS, *running.MUTANTS, *session.MUTANTS]
