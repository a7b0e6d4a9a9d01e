"""The header of a request and the condition of a put: who is refused, and what is stored."""

from __future__ import annotations

from typing import Any

import pytest
from terms import open_term

from leaderq import fencing
from leaderq.errors import ConfigurationError, Deposed
from leaderq.fencing import FencingToken, Ruling, check_response, conditional_put, term_header

NINE, TEN = FencingToken("c", 9), FencingToken("c", 10)
OTHER = FencingToken("other", 12)


@pytest.mark.parametrize(
    ("sent", "newest", "ruling", "stored"),
    [
        (NINE, None, Ruling.ACCEPTED, NINE),
        (NINE, NINE, Ruling.ACCEPTED, NINE),
        (TEN, NINE, Ruling.ACCEPTED, TEN),
        (NINE, TEN, Ruling.OLDER, TEN),
        (TEN, OTHER, Ruling.OTHER_CAREER, OTHER),
        (None, NINE, Ruling.MISSING, NINE),
        (None, None, Ruling.MISSING, None),
        ('10;career="c", 11;career="c"', NINE, Ruling.UNREADABLE, NINE),
        ("10", NINE, Ruling.UNREADABLE, NINE),
    ],
)
def test_what_a_service_says_and_stores(sent, newest, ruling, stored):
    value = term_header(sent)["Leaderq-Term"] if isinstance(sent, FencingToken) else sent
    judged = fencing.judge_header(value, newest)
    assert (judged.ruling, judged.newest) == (ruling, stored)
    assert judged.is_accepted is (ruling is Ruling.ACCEPTED)
    assert judged.headers == ({} if judged.is_accepted or stored is None else term_header(stored))


def test_a_leader_that_is_answered_with_a_newer_term_is_deposed():
    term = open_term(9)
    answer = fencing.judge_header('9;career="c"', TEN)
    lower = {"age": "1"} | {name.lower(): value for name, value in answer.headers.items()}
    with pytest.raises(Deposed, match="https://bills has seen term 10") as refused:
        check_response(term, answer.ruling.status, lower, where="https://bills")
    assert refused.value.newest == 10
    with pytest.raises(Deposed):
        term.check()


@pytest.mark.parametrize(
    ("status", "value"),
    [(200, TEN), (409, TEN), (412, None), (412, NINE), (412, OTHER), (412, "nonsense")],
)
def test_any_other_answer_is_left_to_the_caller(status, value):
    text = term_header(value)["Leaderq-Term"] if isinstance(value, FencingToken) else value
    term = open_term(9)
    check_response(term, status, {} if text is None else {"Leaderq-Term": text})
    term.check()


def head(text: str | None, name: str = fencing.METADATA_KEY) -> dict[str, Any]:
    return {"ETag": '"e"', "Metadata": {"of": "others"} | ({} if text is None else {name: text})}


def test_an_object_that_is_not_there_is_put_only_if_nobody_creates_it():
    put = conditional_put(TEN, None, metadata={"a": "b"})
    assert put == {"IfNoneMatch": "*", "Metadata": {"a": "b", "leaderq-term": '10;career="c"'}}


@pytest.mark.parametrize("text", [None, '9;career="c"', '10;career="c"'])
def test_an_object_of_this_or_an_older_term_or_of_none_is_put_only_if_it_is_unchanged(text):
    put = conditional_put(TEN, head(text), metadata={"a": "b"})
    assert put == {"IfMatch": '"e"', "Metadata": {"a": "b", "leaderq-term": '10;career="c"'}}
    assert conditional_put(TEN, {"ETag": '"e"'})["IfMatch"] == '"e"'


def test_an_object_of_a_newer_term_is_not_put():
    term = open_term(9)
    with pytest.raises(Deposed, match="s3://b/k has seen term 10"):
        conditional_put(term, head('10;career="c"', "Leaderq-Term"), where="s3://b/k")
    with pytest.raises(Deposed):
        term.check()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (head('1;career="other"'), "belongs to career 'other'"),
        (head("nonsense"), "'nonsense' is not a number and a career"),
        ({"Metadata": {}}, r"head has no ETag, but \['Metadata'\].*give what head_object"),
        ({"ETag": 3}, "head has no ETag"),
        ({"ETag": ""}, "head has no ETag"),
        ("head", "head='head': give Mapping"),
    ],
)
def test_what_cannot_be_compared_is_not_put(given, told):
    with pytest.raises(ConfigurationError, match=told):
        conditional_put(TEN, given)


def test_metadata_of_the_user_cannot_replace_the_token():
    with pytest.raises(ConfigurationError, match="which leaderq writes"):
        conditional_put(TEN, None, metadata={"Leaderq-Term": "1"})


def test_after_another_writer_was_met_the_object_is_read_again():
    told = (200, 400, 403, 404, 409, 412, 500, 503)
    assert [status for status in told if fencing.read_again(status)] == [404, 409, 412]
