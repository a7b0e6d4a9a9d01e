"""Settings: one table, one resolver, one value that everything else is handed.

Last wins: defaults, ``leaderq.toml``, its table ``[careers.NAME]``, ``LEADERQ_*`` variables, flags. What is absent
never overrides; an empty variable counts as absent. Each value remembers its source; all problems are reported at once.
"""

from __future__ import annotations

from leaderq.config.kafka_security import KafkaSecurity
from leaderq.config.loading import Configuration, load
from leaderq.config.settings import TABLE, Row, Section, Settings, new_candidate_id

__all__ = ["TABLE", "Configuration", "KafkaSecurity", "Row", "Section", "Settings", "load", "new_candidate_id"]
