"""The token and its text: what can be compared, and what is refused with a sentence."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from terms import open_term

from leaderq.async_term import AsyncTerm
from leaderq.errors import ConfigurationError, Deposed, Reason
from leaderq.fencing import MAX_NUMBER, FencingToken
from leaderq.fencing.fencing_token import judge, token_text

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=255)


@given(career=NAMES, number=st.integers(1, 10**15 - 1))
def test_a_token_is_read_as_it_was_written(career, number):
    text = token_text(FencingToken(career, number))
    assert text.isascii()
    assert text.isprintable()
    assert FencingToken.read(text) == FencingToken(career, number)


@pytest.mark.parametrize(
    ("text", "career", "number"),
    [
        ('42;career="billing"', "billing", 42),
        ('  007 ;career="b"'.replace(" ;", ";"), "b", 7),
        ('1; career="a b"  ', "a b", 1),
        (r'1;career="say \"\\\""', 'say "\\"', 1),
        ('1;career=%"b%c3%bcro"', "büro", 1),
        ('1;a;b=?0;c=1.5;d=tok/en;e=:aGk=:;f=@-7;g="; career=";career="b";h=-3', "b", 1),
        ('1;career="old";career="new"', "new", 1),
    ],
)
def test_a_structured_field_value_is_read_as_the_rfc_says(text, career, number):
    assert FencingToken.read(text) == FencingToken(career, number)


@pytest.mark.parametrize(
    "text",
    [
        None, b'1;career="b"', 1, "", "1", "career=b", '-1;career="b"', '0;career="b"',
        '1.0;career="b"', '1;career=b', "1;career", '1;career=""', '1;career="ü"', '1;career="b',
        '1;career=%"%c3"', '1;career=%"%C3%BC"', '1;Career="b"', '1;career="b", 2;career="b"',
        '1 ;career="b"', '1;career ="b"', '9999999999999999;career="b"', '\uff11;career="b"',
        '1;career="b"\n', '1;career="' + "x" * 256 + '"',
    ],
)  # fmt: skip
def test_anything_else_is_not_a_token(text):
    with pytest.raises(ConfigurationError, match=r"give|is not a number and a career"):
        FencingToken.read(text)


@pytest.mark.parametrize("number", ["7", True, 7.0, None, 0, -1, 2**63])
def test_only_numbers_of_terms_are_compared(number):
    foreign = SimpleNamespace(career="c", number=number)
    told = "give the number of a term, 1 to 92233720368"
    for use in (lambda: FencingToken("c", number), lambda: token_text(foreign)):
        with pytest.raises(ConfigurationError, match=told):
            use()


@pytest.mark.parametrize("career", ["", None, "a\0b", "x" * 256, "\ud800", 3])
def test_only_a_name_is_a_career(career):
    with pytest.raises(ConfigurationError, match=r"^career=.*a text of 1 to 255 characters"):
        FencingToken(career, 1)


def test_a_career_that_is_not_plain_ascii_is_a_display_string():
    assert token_text(FencingToken(' !}~"%\x7fü\x1f', 1)) == '1;career=%" !}~%22%25%7f%c3%bc%1f"'


def test_the_highest_number_can_be_compared_but_more_than_15_digits_cannot_be_text():
    assert FencingToken("x" * 255, 2**63 - 1).number == MAX_NUMBER
    with pytest.raises(ConfigurationError, match="up to 999999999999999,"):
        token_text(FencingToken("c", 10**15))


@pytest.mark.parametrize("kind", [lambda term: term, AsyncTerm])
def test_a_refusal_names_career_and_numbers_says_what_to_do_and_ends_the_term(kind):
    term = kind(open_term(3))
    judge(term, None, "the store")
    judge(term, FencingToken("c", 3), "the store")
    with pytest.raises(Deposed) as refused:
        judge(term, FencingToken("c", 12), "the store")
    assert (refused.value.term, refused.value.newest) == (3, 12)
    assert refused.value.reason is Reason.FENCED
    for told in ("term 3 is over", "the store has seen term 12 of career 'c'", "Undo what was"):
        assert told in str(refused.value)
    assert str(refused.value).endswith("leaderq raise-floor 13 --career c")
    assert term.reason is Reason.FENCED
    with pytest.raises(Deposed):
        term.check()


def test_another_career_is_a_mistake_of_the_program_and_deposes_nobody():
    term = open_term(3)
    with pytest.raises(ConfigurationError, match=r"'other'.* career 'c' cannot be compared"):
        judge(term, FencingToken("other", 1), "the store")
    term.check()
