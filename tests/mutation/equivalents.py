"""Edits that change nothing that a program could see, each with its reason."""

from __future__ import annotations

EQUIVALENT: dict[str, str] = {
    "threads.capacity:442f82c8": "who waits for 0 seconds is told the same a moment later",
    "threads.listeners:f23ebe13": "a type alias",
}
