"""The mutants of ``leaderq.zookeeper``: those that a leader's safety hangs on."""

from __future__ import annotations

from mutants.mutant import Edit, mutant

CONNECTION = "leaderq/zookeeper/connection.py"
REQUESTS = "leaderq/zookeeper/requests.py"
ENDING = "leaderq/zookeeper/ending.py"
CONNECTION = "leaderq/zookeeper/connection.py"
SESSION = "leaderq/zookeeper/session.py"
WATCHING = "leaderq/zookeeper/watching.py"

BUG = "tests/faults/election/test_bugs_1_to_13.py::test_bug_"
LATER_BUG = "tests/faults/election/test_bugs_14_to_28.py::test_bug_"
CANDIDATES = "tests/integration/election/test_candidates.py::test_"
EMPTIED = "tests/integration/zookeeper/test_emptied_server.py::test_"
ENDS = "tests/integration/zookeeper/test_ending.py::test_"

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
        "a watch that is added while the last one is removed is removed with it",
        "tests/unit/zookeeper/test_watches_kept.py::"
        "test_a_watch_that_is_added_while_the_last_one_is_removed_stands",
        Edit(
            WATCHING,
            "            return subscription, self._send(AddWatch(server_path, mode), path)\n",
            "        return subscription, self._send(AddWatch(server_path, mode), path)\n",
        ),
        Edit(
            WATCHING,
            "            self._send(RemoveWatches(",
            "        self._send(RemoveWatches(",
        ),
    ),
    mutant(
        "a session that is replaced is ended before its owner hears of it",
        f"{BUG}10_a_term_ends_before_its_session_whatever_stands_still[replace]",
        Edit(
            SESSION,
            '            log.warning("ZooKeeper client replaced',
            "            self._end(old, credentials, REPLACE_TIMEOUT_S)\n"
            "            primitives.Event().wait(1.0)\n"
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
            "        primitives.Event().wait(1.0)\n"
            "        self._listeners.announce(SessionState.CLOSED)\n",
        ),
    ),
    mutant(
        "a stranger at the port of a server is believed to have ended the session",
        f"{ENDS}a_stranger_at_the_port_of_a_server_has_ended_no_session_and_holds_nobody_up",
        Edit(ENDING, "        if not _LEAST <= size <= _MOST:", "        if False:"),
        may_hang=True,
    ),
    mutant(
        "a session waits for ever for servers that were emptied",
        f"{EMPTIED}a_session_with_servers_that_were_emptied_is_over_and_another_begins",
        Edit(CONNECTION, "            self.client.last_zxid = 0\n", "            pass\n"),
        may_hang=True,
    ),
]
