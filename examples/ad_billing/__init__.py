"""Billing clicks: a career that drains an access log from Kafka into a ledger, each record exactly
once.

``leaderq run ad_billing:AdBilling`` stands for election with it; ``leaderq demo`` runs these very
files.
"""

from __future__ import annotations

from .billing import AdBilling

__all__ = ["AdBilling"]
