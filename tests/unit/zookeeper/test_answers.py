from __future__ import annotations

import concurrent.futures
from collections.abc import Callable

from kazoo.exceptions import NoNodeError

from leaderq.errors import NoNode
from leaderq.zookeeper.requests import Answer, Reply
from leaderq.zookeeper.translation import translated


class Jobs:
    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []

    def run(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


def made() -> tuple[Jobs, Answer[int], Reply[int]]:
    jobs = Jobs()
    answer: Answer[int] = Answer(jobs.waiting.append)
    return jobs, answer, Reply(answer, int, lambda exc: translated(exc, "/a"))


def test_a_reply_is_converted_and_callbacks_wait_for_their_thread() -> None:
    jobs, answer, reply = made()
    heard: list[object] = []
    answer.add_done_callback(heard.append)
    reply.set("7")
    assert answer.result(0) == 7
    assert heard == []
    jobs.run()
    assert heard == [answer]


def test_of_several_requests_with_one_answer_the_last_reply_is_it_or_any_error() -> None:
    for error in (None, NoNodeError()):
        _, answer, last = made()
        former = Reply(answer, last.convert, last.translate, is_last=False)
        former.set("7")
        assert not answer.done()
        if error is None:
            former.set("8")
        else:
            former.set_exception(error)
        last.set("9")
        if error is None:
            assert answer.result(0) == 9
        else:
            assert isinstance(answer.exception(0), NoNode)


def test_an_error_of_kazoo_arrives_as_ours() -> None:
    _, answer, reply = made()
    reply.set_exception(NoNodeError())
    error = answer.exception(0)
    assert isinstance(error, NoNode)
    assert error.path == "/a"
    assert isinstance(error.__cause__, NoNodeError)


def test_late_and_repeated_replies_are_harmless() -> None:
    _, answer, reply = made()
    reply.set("1")
    reply.set("2")
    reply.set_exception(NoNodeError())
    assert answer.result(0) == 1


def test_a_reply_to_a_cancelled_request_is_harmless_and_waiters_wake() -> None:
    _, answer, reply = made()
    assert answer.cancel()
    assert answer.cancel()
    reply.set("1")
    reply.set_exception(NoNodeError())
    assert concurrent.futures.wait([answer], timeout=0).done == {answer}


def test_a_reply_that_cannot_be_converted_fails_the_request_and_nothing_else() -> None:
    _, answer, reply = made()
    reply.set("no number")
    assert "ValueError" in str(answer.exception(0))
