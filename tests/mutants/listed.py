"""All mutants."""

from __future__ import annotations

from mutants import (
    cli,
    command,
    dyno,
    election,
    helpers,
    kafka,
    producing,
    queues,
    running,
    session,
)

MUTANTS = [
    *cli.MUTANTS,
    *command.MUTANTS,
    *dyno.MUTANTS,
    *election.MUTANTS,
    *helpers.MUTANTS,
    *kafka.MUTANTS,
    *producing.MUTANTS,
    *queues.MUTANTS,
    *running.MUTANTS,
    *session.MUTANTS,
]
