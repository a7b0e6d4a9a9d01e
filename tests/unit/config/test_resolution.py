from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leaderq.config import DEFAULT, TABLE, Configuration, Settings, load
from leaderq.errors import ConfigurationError


def loaded(
    folder: Path,
    toml: str = "",
    environ: dict[str, str] | None = None,
    flags: dict[str, Any] | None = None,
    **more: Any,
) -> Configuration:
    if toml:
        (folder / "leaderq.toml").write_text(toml)
    return load(flags, environ=environ or {}, folder=folder, **more)


def problems(folder: Path, *args: Any, **more: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        loaded(folder, *args, **more)
    return caught.value.problems


@pytest.mark.parametrize(
    ("toml", "variable", "flag", "value", "source"),
    [
        ("", None, None, 10.0, DEFAULT),
        ("handover_budget_s = 1", None, None, 1.0, "{folder}/leaderq.toml"),
        ("handover_budget_s = 1", "2", None, 2.0, "LEADERQ_HANDOVER_BUDGET_S"),
        ("handover_budget_s = 1", "2", "3", 3.0, "--handover-budget-s"),
        ("handover_budget_s = 1", "", None, 1.0, "{folder}/leaderq.toml"),
        ("id = 'b'", None, None, 10.0, DEFAULT),
    ],
)
def test_the_last_layer_that_says_something_wins(tmp_path, toml, variable, flag, value, source):
    environ = {} if variable is None else {"LEADERQ_HANDOVER_BUDGET_S": variable}
    found = loaded(tmp_path, toml, environ, {"handover_budget_s": flag})
    assert found.settings.handover_budget_s == value
    assert found.source("handover_budget_s") == source.format(folder=tmp_path)


def test_the_table_of_a_career_wins_over_the_top_of_the_file_for_that_career_only(tmp_path):
    toml = "settle_s = 1\n[careers.ad-billing]\nsettle_s = 2\n"
    found = loaded(tmp_path, toml, career="ad-billing")
    assert found.settings.settle_s == 2.0
    assert found.source("settle_s") == f"{tmp_path}/leaderq.toml in [careers.ad-billing]"
    assert loaded(tmp_path, toml, career="other").settings.settle_s == 1.0
    variable, flag = {"LEADERQ_CAREER": "ad-billing"}, {"career": "ad-billing"}
    assert loaded(tmp_path, toml, variable, career="other").settings.settle_s == 2.0
    assert loaded(tmp_path, toml, {"LEADERQ_CAREER": "other"}, flag).settings.settle_s == 2.0


# What each kind of value refuses: test_kinds_of_values.py.
UNFIT = [
    ("zookeeper", "a//x", "no usable chroot"),
    ("kafka", "a:9092/x", "path behind the address"),
    ("id", "é" * 101, "longer than 200 bytes"),
    ("session_timeout_s", "0", "out of range"),
    ("kafka_mechanism", "GSSAPI", "write one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
]


@pytest.mark.parametrize(("name", "text", "why"), UNFIT)
def test_an_unfit_variable_is_refused_with_value_place_and_remedy(tmp_path, name, text, why):
    variable = f"LEADERQ_{name.upper()}"
    found = problems(tmp_path, environ={variable: text})
    assert len(found) == 1
    assert found[0].startswith(f"{variable}: {text!r} ")
    assert why in found[0]
    assert "; " in found[0]


@pytest.mark.parametrize(
    ("toml", "what", "why"),
    [
        ("settle_s = '1'", "settle_s", ": '1' is not a number; write seconds as a plain number"),
        ("settle_s = true", "settle_s", ": true is not a number"),
        ("zookeeper = 2181", "zookeeper", ": 2181 is not text; write it in quotes"),
        ("zookeper = 'a'", "zookeper", " is not a setting of leaderq; did you mean zookeeper?"),
        ("colour = 'red'", "colour", " is not a setting of leaderq; remove it"),
        ("[careers.a]\nclas = ''", "clas in [careers.a]", " is not a setting of leaderq; did you"),
        ("[career.a]\nid = 'a'", "[career]", " is not a table of leaderq; did you mean [careers."),
        ("[kafka_stuff]", "[kafka_stuff]", " is not a table of leaderq; write settings at the top"),
        ("careers = 1", "careers", " is not a set of tables"),
        ("[careers]\na = 1", "careers", " is not a set of tables"),
        ("[careers.a]\ncareer = 'b'", "career in [careers.a]", " would rename"),
        ("kafka_password_file = 3", "kafka_password_file", ": 3 is not the path of a file"),
        ('kafka_password_file = "a\\u0000"', "kafka_password_file", ": 'a\\x00' is not a file"),
        ("log_config = '~nosuchuser/a'", "log_config", ": '~nosuchuser/a' begins with a home that"),
    ],
)
def test_an_unfit_file_is_refused_with_value_place_and_remedy(tmp_path, toml, what, why):
    said = f"{what} of {tmp_path / 'leaderq.toml'}{why}"
    assert problems(tmp_path, toml)[0].startswith(said)


def test_an_unknown_variable_is_warned_of_and_its_name_guessed(tmp_path, caplog):
    """After a roll back, the environment may have what only the newer version knows."""
    environ = {"LEADERQ_ZOOKEPER": "a", "LEADERQ_YIELD_S": "7"}
    assert load(environ=environ, folder=tmp_path).settings.yield_s == 7
    said = "LEADERQ_ZOOKEPER is not a setting of leaderq; did you mean LEADERQ_ZOOKEEPER?"
    assert [one.getMessage() for one in caplog.records] == [f"variable ignored why={said!r}"]


RELATED = [
    ("zookeeper_auth=digest", "zookeeper_auth", "needs zookeeper_user and zookeeper_password"),
    ("zookeeper_user=u", "zookeeper_user", "zookeeper_auth is 'none'"),
    ("zookeeper_password=hunter2", "zookeeper_password", "zookeeper_auth is 'none'"),
    ("zookeeper_ca=pem", "zookeeper_ca", "turn zookeeper_tls on"),
    ("zookeeper_tls=1 zookeeper_cert=pem", "zookeeper_cert", "goes together with zookeeper_key"),
    ("zookeeper_tls=1 zookeeper_key_password=p", "zookeeper_key_password", "which is not set"),
    ("zookeeper_tls=1 zookeeper_verify=0 zookeeper_ca=pem", "zookeeper_verify", "is not used"),
    ("kafka_protocol=SASL_SSL kafka_user=u", "kafka_protocol", "needs kafka_mechanism, kafka_user"),
    ("kafka_user=u", "kafka_user", "used with SASL only"),
    ("kafka_password=hunter2", "kafka_password", "used with SASL only"),
    ("kafka_ca=pem", "kafka_ca", "used with encryption only"),
    ("kafka_protocol=SSL kafka_key_password=p", "kafka_key_password", "which is not set"),
    ("yield_s=1 cool_off_s=2", "yield_s", "shorter than cool_off_s"),
]


@pytest.mark.parametrize(("values", "place", "said"), RELATED)
def test_settings_that_contradict_each_other_are_refused(tmp_path, values, place, said):
    (tmp_path / "pem").write_text("x")
    given = (one.partition("=") for one in values.split())
    found = problems(tmp_path, environ={f"LEADERQ_{name.upper()}": text for name, _, text in given})
    assert len(found) == 1
    assert found[0].startswith((f"LEADERQ_{place.upper()}: ", f"{place}: "))
    assert said in found[0]
    assert "hunter2" not in found[0]


def test_a_careers_own_values_reach_it_and_are_not_looked_at(tmp_path):
    toml = "[careers.a.options]\nnested = { deep = [1, 'x'] }\n[careers.b.options]\nother = 2\n"
    assert loaded(tmp_path, toml, career="a").settings.options == {"nested": {"deep": [1, "x"]}}
    assert loaded(tmp_path, toml, flags={"id": "x"}, career="b").settings.options == {"other": 2}
    assert loaded(tmp_path, toml, career="c").settings.options == {}
    assert Settings().options == {}


SECRETS = [row for row in TABLE if row.secret]
SASL = {"LEADERQ_KAFKA_PROTOCOL": "SASL_SSL", "LEADERQ_KAFKA_MECHANISM": "PLAIN"}
SASL |= {"LEADERQ_KAFKA_USER": "u"}


def test_a_secret_is_masked_where_it_is_shown_and_absent_from_the_repr(tmp_path):
    found = load(environ=SASL | {"LEADERQ_KAFKA_PASSWORD": "hunter2"}, folder=tmp_path)
    assert found.settings.kafka_security.password == "hunter2"
    shown = {row.name: value for row, value, _ in found.rows()}
    assert shown["kafka_password"] == "****"
    assert shown["zookeeper_password"] is None
    for one in (found, found.settings, found.settings.kafka_security, shown):
        assert "hunter2" not in repr(one)


@pytest.mark.parametrize("secret", [row.name for row in SECRETS])
def test_an_unfit_secret_is_complained_about_without_being_shown(tmp_path, secret):
    (said,) = problems(tmp_path, f"{secret} = 271828")
    assert "271828" not in said
    assert "'****' is not text" in said


def test_a_secret_may_be_kept_in_a_file_next_to_the_configuration_file(tmp_path):
    (tmp_path / "kafka.secret").write_text("hunter2\n")
    (tmp_path / "leaderq.toml").write_text("kafka_password_file = 'kafka.secret'")
    found = load(environ=SASL, folder=tmp_path / "..", config=tmp_path / "leaderq.toml")
    assert found.settings.kafka_password == "hunter2"
    assert found.source("kafka_password") == str(tmp_path / "leaderq.toml")


def test_a_secret_and_its_file_in_the_same_place_are_refused(tmp_path):
    (tmp_path / "s").write_text("x")
    environ = SASL | {"LEADERQ_KAFKA_PASSWORD": "hunter2", "LEADERQ_KAFKA_PASSWORD_FILE": "s"}
    (said,) = problems(tmp_path, environ=environ)
    both = "LEADERQ_KAFKA_PASSWORD and LEADERQ_KAFKA_PASSWORD_FILE"
    assert said == f"{both} are both set; keep one of them"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read: No such file"),
        (b"", "exactly one line"),
        (b"a\nb\n", "exactly one line"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_an_unusable_file_of_a_secret_is_named(tmp_path, content, why):
    if content is not None:
        (tmp_path / "s").write_bytes(content)
    (said,) = problems(tmp_path, environ=SASL | {"LEADERQ_KAFKA_PASSWORD_FILE": "s"})
    assert said.startswith("LEADERQ_KAFKA_PASSWORD_FILE: 's' ")
    assert why in said


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"a = \n", "is not TOML: Invalid value (at line 1, column 5)"),
        (b"a = 1\na = 2\n", "line 2"),
        (b"a = [\n", "a bracket or a quote is still open"),
        (b"a = '\xff'", "is not UTF-8 text (byte 5)"),
        (b"a = " + b"[" * 3000, "its values are nested too deeply"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(tmp_path, content, why):
    (tmp_path / "leaderq.toml").write_bytes(content)
    (said,) = problems(tmp_path)
    assert str(tmp_path / "leaderq.toml") in said
    assert why in said


def test_a_file_that_is_chosen_or_there_is_never_ignored(tmp_path):
    (tmp_path / "leaderq.toml").symlink_to("leaderq.toml")  # as unreadable as in a closed folder
    for config, said in (
        (None, f"{str(tmp_path / 'leaderq.toml')!r} cannot be read: "),
        ("", f"{str(tmp_path)!r} cannot be read: Is a directory; name another with --config"),
        ("~nosuchuser/a", "'~nosuchuser/a' begins with a home that is not known"),
    ):
        assert f"configuration file {said}" in problems(tmp_path, config=config)[0]


def test_certificates_that_cannot_be_read_are_named_with_their_place(tmp_path):
    environ = {"LEADERQ_ZOOKEEPER_TLS": "1", "LEADERQ_ZOOKEEPER_CA": "no.pem"}
    (said,) = problems(tmp_path, environ=environ)
    path = f"{tmp_path}/no.pem"
    assert said.startswith(f"LEADERQ_ZOOKEEPER_CA: '{path}' cannot be read: No such file")


def test_the_mark_that_some_editors_write_is_part_of_neither_a_file_nor_a_secret(tmp_path):
    (tmp_path / "leaderq.toml").write_text("yield_s = 7\n", encoding="utf-8-sig")
    (tmp_path / "secret").write_text("s3cret\n", encoding="utf-8-sig")
    flags = {"zookeeper_auth": "digest", "zookeeper_user": "u", "zookeeper_password_file": "secret"}
    found = load(flags, environ={}, folder=tmp_path).settings
    assert (found.yield_s, found.zookeeper_password) == (7, "s3cret")
