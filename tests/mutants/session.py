"""The mutants of ``leaderq.zookeeper``: those that a leader's safety hangs on."""

from __future__ import annotations

from mutants.mutant import Edit, mutant

CONNECTION = "leaderq/zookeeper/connection.py"
REQUESTS = "leaderq/zookeeper/requests.py"
SESSION = "leaderq/zookeeper/session.py"

BUG = "tests/faults/election/test_bugs_1_to_13.py::test_bug_"
LATER_BUG = "tests/faults/election/test_bugs_14_to_28.py::test_bug_"
CANDIDATES = "tests/integration/election/test_candidates.py::test_"

MUTANTS = [
    mutant(
        "a session that is closed without a connection is left to expire",
        f"{BUG}12_a_session_closed_suspended_ends",
        Edit(
            SESSION,
            "or credentials is None:\n            return True\n",
            "or True:\n            return True\n",
        ),
    ),
    mutant(
        "a busy connection is never found dead",
        f"{LATER_BUG}26_a_busy_connection_is_found_dead",
        Edit(
            CONNECTION,
            "        if not self._liveness.is_dead(monotonic()):\n            return\n",
            "        return\n",
        ),
    ),
    mutant(
        "a listener may wait for an answer on the thread that reads answers",
        f"{LATER_BUG}14_a_listener_that_asks_zookeeper_hangs_nothing",
        Edit(REQUESTS, " and self._client.is_connection_thread():\n", " and False:\n"),
    ),
    mutant(
        "a session that is replaced is ended before its owner hears of it",
        f"{BUG}10_a_term_ends_before_its_session_whatever_stands_still[replace]",
        Edit(
            SESSION,
            '            log.warning("ZooKeeper client replaced',
            "            self._end(old, credentials, REPLACE_TIMEOUT_S)\n"
            "            threading.Event().wait(1.0)\n"
            '            log.warning("ZooKeeper client replaced',
        ),
    ),
    mutant(
        "a session that is closed is ended before its owner hears of it",
        f"{BUG}10_a_term_ends_before_its_session_whatever_stands_still[close]",
        Edit(
            SESSION,
            "        self._listeners.announce(SessionState.CLOSED)\n",
            "        self._end(self._client, self._credentials, timeout_s)\n"
            "        threading.Event().wait(1.0)\n"
            "        self._listeners.announce(SessionState.CLOSED)\n",
        ),
    ),
]
