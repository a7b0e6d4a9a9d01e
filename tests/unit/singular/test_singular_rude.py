"""Users who do what the documentation does not mention: a queue takes it, or says so at once."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from held import WAIT_S, Told

from leaderq.errors import ConfigurationError
from leaderq.singular import SingularUpdateQueue


class Rude(BaseException):
    """Not an Exception, and nothing that anybody expects."""


@pytest.mark.parametrize("kind", [Rude, GeneratorExit, asyncio.CancelledError, StopIteration])
def test_whatever_a_handler_raises_reaches_its_caller_and_the_queue_goes_on(
    kind: type[BaseException],
) -> None:
    raised = kind()

    def handle(request: str) -> str:
        if request == "rude":
            raise raised
        return request

    async def use() -> None:
        with pytest.raises((type(raised), RuntimeError)) as caught:
            await asyncio.wait_for(queue.call("rude"), WAIT_S)
        assert type(raised) in (type(caught.value), type(caught.value.__cause__))
        assert await queue.call("next") == "next"

    with SingularUpdateQueue(handle, on_error=(told := Told())) as queue:
        future = queue.submit("rude")
        error = future.exception(WAIT_S)
        assert raised in (error, getattr(error, "__cause__", None))
        assert queue.submit("next").result(WAIT_S) == "next"
        asyncio.run(use())
    assert queue.failure is None
    assert [kind for _, kind in told.kinds] == [type(raised)] * 2


@pytest.mark.parametrize("wrong", [-1.0, math.nan, "1", True])
def test_what_is_no_time_is_refused_whether_the_queue_is_full_or_not(wrong: Any) -> None:
    with SingularUpdateQueue(lambda request: request, capacity=1) as queue:
        for ask in (queue.post, queue.submit):
            with pytest.raises(ConfigurationError, match="timeout_s"):
                ask("a", timeout_s=wrong)  # type: ignore[operator]
            with pytest.raises(ConfigurationError, match="deadline_s"):
                ask("a", deadline_s=wrong)  # type: ignore[operator]
        with pytest.raises(ConfigurationError, match="timeout_s"):
            queue.close(timeout_s=wrong)
        for ask_async in (queue.apost, queue.call):
            with pytest.raises(ConfigurationError, match="timeout_s"):
                asyncio.run(ask_async("a", timeout_s=wrong))  # type: ignore[arg-type]
        assert queue.stats().accepted == 0
