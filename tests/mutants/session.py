"""The mutants of ``leaderq.zookeeper``: those that a leader's safety hangs on."""

from __future__ import annotations

from mutants.mutant import Edit, mutant

CONNECTION = "leaderq/zookeeper/connection.py"
OWNED = "leaderq/zookeeper/owned.py"
SESSION = "leaderq/zookeeper/session.py"

BUG = "tests/faults/election/test_bugs_1_to_13.py::test_bug_"
LATER_BUG = "tests/faults/election/test_bugs_14_to_28.py::test_bug_"
CANDIDATES = "tests/integration/election/test_candidates.py::test_"

MUTANTS = [
    mutant(
        "a session that is closed without a connection is left to expire",
        f"{BUG}12_a_session_closed_while_suspended_ends",
        Edit(OWNED, "or credentials is None:\n            return True\n", "or True:\n            return True\n"),
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
        Edit(
            SESSION,
            "if link is not None and link.is_connection_thread():",
            "if False:",
        ),
    ),
    mutant(
        "a session is ended on the servers before its owner hears of it",
        f"{CANDIDATES}a_session_given_up_by_its_own_process_ends_the_term_before_the_znode_vanishes[replace]",
        Edit(
            OWNED,
            "            self._listeners.deliver()\n            self._end(old, credentials, FAREWELL_S)\n",
            "            self._end(old, credentials, FAREWELL_S)\n            self._listeners.deliver()\n",
        ),
    ),
]
