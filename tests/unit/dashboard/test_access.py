"""Who is let in, and what may be confirmed."""

from __future__ import annotations

from pathlib import Path

import pytest

from leaderq import clock
from leaderq.dashboard.access import LASTS_S, PageAccess, read_tokens
from leaderq.dashboard.actions import Action, Deed
from leaderq.errors import ConfigurationError

TOKEN = "a-token-of-alice-0"
PAUSE = Action(Deed.PAUSE, "billing")


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch):
    """Let so many seconds pass."""
    at = [1000.0]
    monkeypatch.setattr(clock, "now_s", lambda: at[0])

    def passed(seconds: float) -> None:
        at[0] += seconds

    return passed


@pytest.mark.parametrize(
    ("host", "is_local", "is_ours"),
    [
        ("localhost:8090", True, True),
        ("127.0.0.1", True, True),
        ("[::1]:8090", True, True),
        ("LOCALHOST:1", True, True),
        ("page.example", True, True),
        ("evil.example:8090", True, False),
        ("localhost.evil.example", True, False),
        ("", True, False),
        ("page.example:443", False, True),
        ("localhost:8090", False, False),
    ],
)
def test_only_expected_host_names_are_answered(host: str, is_local: bool, is_ours: bool) -> None:
    access = PageAccess(frozenset({"page.example"}), is_local=is_local)
    assert access.is_expected(host) is is_ours


@pytest.mark.parametrize(
    ("origin", "fetched_from", "is_own"),
    [
        ("http://localhost:8090", "same-origin", True),
        ("https://localhost:8090", None, True),  # a proxy in front speaks TLS
        (None, None, True),
        (None, "none", True),
        ("http://localhost:8091", None, False),
        ("http://evil.example", None, False),
        ("null", None, False),
        ("http://localhost:8090", "cross-site", False),
        (None, "same-site", False),
    ],
)
def test_a_form_of_another_site_is_not_ours(
    origin: str | None, fetched_from: str | None, is_own: bool
) -> None:
    assert PageAccess().is_own(origin, fetched_from, "localhost:8090") is is_own


def test_a_visit_begins_with_a_token_and_ends_when_it_is_old_or_signed_out(later) -> None:
    access = PageAccess(tokens={"alice": TOKEN, "bob": "b" * 20})
    assert access.sign_in("") is access.sign_in("b" * 19) is access.sign_in("\ud800") is None
    cookie = access.sign_in(TOKEN)
    visit = access.visit(cookie)
    assert visit is not None
    assert visit.user == "alice"
    assert access.visit(None) is access.visit("x") is None
    assert access.visit(access.sign_in(TOKEN)).secret != visit.secret
    access.sign_out(cookie)
    assert access.visit(cookie) is None
    cookie = access.sign_in("b" * 20)
    later(LASTS_S + 1)
    assert access.visit(cookie) is None


def test_an_action_is_confirmed_once_and_soon(later) -> None:
    access = PageAccess(tokens={"alice": TOKEN})
    visit = access.visit(access.sign_in(TOKEN))
    assert visit is not None
    word = visit.ask(PAUSE, "a deploy")
    assert visit.confirmed("another") is None
    assert visit.confirmed(word) == (PAUSE, "a deploy")
    assert visit.confirmed(word) is None
    word = visit.ask(PAUSE, "a deploy")
    later(301)
    assert visit.confirmed(word) is None


def test_tokens_are_read_and_a_bad_line_is_named_without_its_token(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# who may act\n\nalice {TOKEN}\nbob   {'b' * 16}\n")
    assert read_tokens(path) == {"alice": TOKEN, "bob": "b" * 16}
    for bad in ("alice", "alice short", f"al:ice {TOKEN}", f"bob {TOKEN}\nbob {'c' * 16}"):
        path.write_text(f"{bad}\n")
        with pytest.raises(ConfigurationError) as refused:
            read_tokens(path)
        assert f"of {path} is not a user's" in str(refused.value)
        assert "short" not in str(refused.value)
        assert TOKEN not in str(refused.value)
    path.write_text("# nobody\n")
    with pytest.raises(ConfigurationError, match="names no user"):
        read_tokens(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_tokens(tmp_path / "absent")
