"""``python -m leaderq``: the same as the console script."""

from __future__ import annotations

import sys

from leaderq.cli import main

sys.exit(main())
