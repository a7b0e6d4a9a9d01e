"""Settings: one table, one function that resolves them, and one value that all other code is given.

An absent value never overrides another; an empty variable counts as absent. Each value remembers
its source. All problems are reported at once. The resolver is imported at its first use, because
--help and library users do not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaderq.base.lazy import exported

if TYPE_CHECKING:
    from leaderq.config.loading import Configuration as Configuration
    from leaderq.config.loading import current_folder as current_folder
    from leaderq.config.loading import load as load
    from leaderq.config.settings import DEFAULT as DEFAULT
    from leaderq.config.settings import TABLE as TABLE
    from leaderq.config.settings import KafkaSecurity as KafkaSecurity
    from leaderq.config.settings import Row as Row
    from leaderq.config.settings import Section as Section
    from leaderq.config.settings import Settings as Settings
    from leaderq.config.settings import new_candidate_id as new_candidate_id

_LOADING = "Configuration current_folder load"
_SETTINGS = "DEFAULT TABLE KafkaSecurity Row Section Settings new_candidate_id"
__getattr__, __all__ = exported(__name__, {"loading": _LOADING, "settings": _SETTINGS})
