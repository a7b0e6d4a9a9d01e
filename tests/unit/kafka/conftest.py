"""kafka-python warns of itself when it is imported, and warnings are errors here; leaderq.kafka
imports it without.
"""

from __future__ import annotations

import leaderq.kafka  # noqa: F401
