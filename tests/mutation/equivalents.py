"""Edits that change nothing that a program could see, each with its reason."""

from __future__ import annotations

EQUIVALENT: dict[str, str] = {}
