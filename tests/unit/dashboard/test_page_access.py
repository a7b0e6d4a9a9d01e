from __future__ import annotations

from pathlib import Path

import pytest

from leaderq.admin.actions import Action, Deed
from leaderq.dashboard.access import LASTS_S, PageAccess, read_tokens
from leaderq.errors import ConfigurationError

TOKEN = "a-token-of-alice-0"
PAUSE = Action(Deed.PAUSE, "billing")


def test_only_expected_host_names_are_answered() -> None:
    local, other = (PageAccess(frozenset({"page.example"}), is_local=one) for one in (True, False))
    ours = ("localhost:8090", "127.0.0.1", "[::1]:8090", "LOCALHOST:1", "page.example:443")
    assert all(map(local.is_expected, ours))
    strange = ("evil.example:8090", "localhost.evil.example", "page.example.evil", "", ":8090")
    assert not any(map(local.is_expected, strange))
    assert [one for one in ours if other.is_expected(one)] == ["page.example:443"]


@pytest.mark.parametrize(
    ("origin", "fetched_from", "is_own"),
    [
        ("http://localhost:8090", "same-origin", True),
        ("https://localhost:8090", None, True),  # a proxy in front speaks TLS
        (None, None, True),
        (None, "none", True),
        *((f"http://{other}", None, False) for other in ("localhost:8091", "evil.example", "[")),
        ("null", None, False),
        ("http://localhost:8090", "cross-site", False),
        (None, "same-site", False),
    ],
)
def test_a_form_of_another_site_is_not_ours(
    origin: str | None, fetched_from: str | None, is_own: bool
) -> None:
    assert PageAccess().is_own(origin, fetched_from, "localhost:8090") is is_own


def test_a_visit_begins_with_a_token_and_ends_when_it_is_old_or_signed_out(at: list[float]) -> None:
    access = PageAccess(tokens={"alice": TOKEN, "bob": "b" * 20})
    assert access.sign_in("") is access.sign_in("b" * 19) is access.sign_in("\ud800") is None
    cookies = [access.sign_in(token) for token in (TOKEN, TOKEN, "b" * 20)]
    visits = [access.visit(one) for one in cookies]
    assert [one and one.user for one in visits] == ["alice", "alice", "bob"]
    assert len({one and one.secret for one in visits}) == 3
    assert access.visit(None) is access.visit("x") is None
    access.sign_out(cookies[0])
    assert access.visit(cookies[0]) is None
    at[0] += LASTS_S + 1
    assert access.visit(cookies[1]) is access.visit(cookies[2]) is None


def test_an_action_is_confirmed_once_and_soon(at: list[float]) -> None:
    access = PageAccess(tokens={"alice": TOKEN})
    visit = access.visit(access.sign_in(TOKEN))
    assert visit is not None
    word = visit.ask(PAUSE, "a deploy")
    assert visit.confirmed("another") is None
    assert visit.confirmed(word) == (PAUSE, "a deploy")
    assert visit.confirmed(word) is None
    word = visit.ask(PAUSE, "a deploy")
    at[0] += 301
    assert visit.confirmed(word) is None


def test_tokens_are_read_and_a_bad_line_is_named_without_its_token(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# who may act\n\nalice {TOKEN}\nbob   {'b' * 16}\r\neve\t {'e' * 16} 1\n")
    assert read_tokens(path) == {"alice": TOKEN, "bob": "b" * 16, "eve": "e" * 16 + " 1"}
    path.write_text(f"\ufeffalice {TOKEN}\n")  # as Notepad saves it
    assert read_tokens(path) == {"alice": TOKEN}
    for bad in ("alice", "alice short", f"al:ice {TOKEN}", f"bob {TOKEN}\nbob {'c' * 16}", "#"):
        path.write_text(f"{bad}\n")
        with pytest.raises(ConfigurationError, match=r"is not a user's|names no user") as refused:
            read_tokens(path)
        assert "short" not in str(refused.value)
        assert TOKEN not in str(refused.value)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_tokens(tmp_path / "absent")
