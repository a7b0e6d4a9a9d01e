"""The fence on a connection and a session of SQLAlchemy."""

from __future__ import annotations

from typing import Any

import pytest

from leaderq.errors import ConfigurationError, Deposed
from leaderq.fencing import FencedRows, FencingToken, SqlFence

sqlalchemy = pytest.importorskip("sqlalchemy", reason="pip install -e '.[dev]'")
orm = pytest.importorskip("sqlalchemy.orm")
FENCE, ROWS = SqlFence("r"), FencedRows("rows", key="id")
OLDER, NEWER = FencingToken("c", 9), FencingToken("c", 10)


@pytest.mark.parametrize("through", ["connection", "session"])
def test_an_older_term_is_refused_and_a_transaction_is_needed(tmp_path, through):
    engine: Any = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'store'}")
    opened = engine.connect if through == "connection" else lambda: orm.Session(engine)
    with opened() as given:
        FENCE.create_table(given)
        given.execute(sqlalchemy.text("CREATE TABLE rows (id INTEGER PRIMARY KEY, term BIGINT)"))
        for token in (OLDER, NEWER, NEWER):
            FENCE.hold(given, token)
            ROWS.put(given, token, {"id": 1})
        given.commit()
        for refuse in (lambda: FENCE.hold(given, OLDER), lambda: ROWS.put(given, OLDER, {"id": 1})):
            with pytest.raises(Deposed):
                refuse()
    with (
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as given,
        pytest.raises(ConfigurationError, match="begin a transaction first"),
    ):
        FENCE.hold(given, NEWER)
    with pytest.raises(ConfigurationError, match="is not a database connection"):
        FENCE.hold(engine, NEWER)
    engine.dispose()
