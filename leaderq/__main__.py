"""``python -m leaderq``: the same as the console script."""

import sys

from leaderq.cli import main

sys.exit(main())
