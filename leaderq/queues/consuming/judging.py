"""What is written for an item after the user's code is through with it (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from leaderq.errors import CorruptItem
from leaderq.queues.consuming.claim import Claim
from leaderq.queues.consuming.operations import acknowledged, buried, kept, now_ms, released, requeued
from leaderq.queues.consuming.settling import Part
from leaderq.queues.retrying import ErrorMode, RetryPolicy, Verdict
from leaderq.queues.wire.payload import Payload


def done(claim: Claim) -> Part:
    """It was worked on."""
    return Part(claim, acknowledged(claim), "acknowledged")


def given_back(claim: Claim) -> Part:
    """It was not begun."""
    return Part(claim, released(claim), "given back")


def interrupted(claim: Claim, left: Sequence[bytes]) -> Part:
    """The user's code could not go on, through no fault of the item; ``left`` of its items are not done."""
    payload = claim.payload
    if payload is None or len(left) == len(payload.items):
        return given_back(claim)
    if claim.hold.is_locking:
        left_there = kept(claim, left, failures=claim.failures, wait_s=0.0)
        return Part(claim, (*left_there, *released(claim)), "given back")
    claim.is_now(Payload(list(left), payload.note))
    return given_back(claim)


def corrupt(claim: Claim, error: Exception) -> Part:
    """Its bytes, or its values, cannot be understood."""
    items = claim.payload.items if claim.payload else ()
    return Part(claim, buried(claim, items, reason="corrupt", error=error, failures=claim.failures), "set aside")


def failed(claim: Claim, left: Sequence[bytes], error: BaseException, mode: ErrorMode, retry: RetryPolicy) -> Part:
    """The user's code raised; ``left`` of its items are not done. In KEEP mode, when it is tried again, it stays claimed."""
    failures = claim.failures + 1
    verdict = retry.verdict(mode, failures)
    if verdict is Verdict.DELETE:
        return Part(claim, acknowledged(claim), "deleted")
    if verdict is Verdict.BURY:
        reason = "corrupt" if isinstance(error, CorruptItem) else "attempts"
        return Part(claim, buried(claim, left, reason=reason, error=error, failures=failures), "set aside")
    wait_s = retry.wait_s(failures)
    until = now_ms() + int(wait_s * 1000)
    if mode is ErrorMode.KEEP:
        return Part(claim, kept(claim, left, failures=failures, wait_s=wait_s), "kept", until)
    return Part(claim, requeued(claim, left, failures=failures, wait_s=wait_s), "requeued", until)
