"""For the unit ring: no test of Hypothesis may fail because the machine was busy.

Its deadline (200 ms for an example) and its check that data are made quickly measure the machine, and neither says anything of
the program.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")
