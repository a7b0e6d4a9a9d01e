"""An error of a user's whose text cannot be had, as when ``__str__`` reads what nobody has set."""

from __future__ import annotations


class Mute(Exception):
    def __str__(self) -> str:
        return str(self.message)


TOLD = "Mute, which cannot be told: AttributeError"
"""What is said of it instead."""
