"""kafka-python warns of itself when it is imported on Python 3.11 and newer; warnings are errors
here, and this one is not ours.
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401
