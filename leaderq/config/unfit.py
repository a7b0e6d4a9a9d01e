"""Why a value cannot be used, before anybody knows where it came from. It never leaves ``leaderq.config``."""

from __future__ import annotations


class Unfit(ValueError):
    """``why`` completes "'value' ..."; ``remedy`` says what to write instead."""

    def __init__(self, why: str, remedy: str) -> None:
        self.why = why
        self.remedy = remedy
        super().__init__(f"{why}; {remedy}")
