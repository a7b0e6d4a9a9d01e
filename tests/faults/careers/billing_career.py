"""The ad-billing example, on the topic of one test."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

from ad_billing import AdBilling


class Billing(AdBilling):
    name = "billing"
    topics = os.environ["TOPIC"]
