"""Functions that would not do their work when the producer calls them are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripted_sink import Make, ScriptedSink

from leaderq.arguments import NotAPlainFunction
from leaderq.errors import ConfigurationError, RequestGivenUp
from leaderq.testing import eventually


async def later(*_: Any) -> None:
    pass


class WithAsync:
    """A sink, or a codec, one of whose methods is a coroutine function."""

    def __init__(self, name: str) -> None:
        for one in ("send", "close", "serialize", "deserialize"):
            setattr(self, one, later if one == name else print)


@pytest.mark.parametrize("name", ["process", "key", "dropped_listener", "state_listener"])
def test_a_coroutine_function_is_refused_as_each_of_a_producers_functions(
    producer: Make, name: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is later, a coroutine function"):
        producer(**{name: later})


@pytest.mark.parametrize("name", ["send", "close"])
def test_a_sink_with_a_coroutine_function_is_refused(producer: Make, name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"the sink's {name} is later"):
        producer(WithAsync(name))


@pytest.mark.parametrize(
    ("codec", "why"),
    [
        (WithAsync("serialize"), "serialize is later"),
        (WithAsync("deserialize"), "deserialize is later"),
        (object(), "serialize is None"),
    ],
)
def test_what_is_no_codec_is_refused_when_it_is_given(
    producer: Make, tmp_path: Path, codec: Any, why: str
) -> None:
    with pytest.raises(ConfigurationError, match=why):
        producer(journal=tmp_path / "journal", codec=codec)
    assert not (tmp_path / "journal").exists()


def test_a_process_step_that_returns_a_coroutine_sends_nothing(
    producer: Make, sink: ScriptedSink
) -> None:
    one = producer(process=lambda request: later(request) if request == "a" else request)
    failed = one.submit("a")
    one.send("b")
    with pytest.raises(RequestGivenUp) as raised:
        failed.result(30)
    assert isinstance(raised.value.__cause__, NotAPlainFunction)
    eventually(lambda: sink.confirmed == ["b"])
