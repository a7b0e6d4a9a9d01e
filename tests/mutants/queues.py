"""The mutants of ``leaderq.queues``: claim, settle and guard."""

from __future__ import annotations

from mutants.mutant import Edit, mutant

DEATHS = "leaderq/queues/consuming/deaths.py"
ENGINE = "leaderq/queues/consuming/engine.py"
CONSUMPTION = "leaderq/queues/consuming/consumption.py"
LISTING = "leaderq/queues/consuming/listing.py"
MEMBERS = "leaderq/queues/consuming/members.py"
PENDING = "leaderq/queues/consuming/pending.py"
PREFETCH = "leaderq/queues/consuming/prefetch.py"
SETTLING = "leaderq/queues/consuming/settling.py"
WORKERS = "leaderq/queues/consuming/workers.py"
PAUSING = "leaderq/queues/pausing.py"
READING = "leaderq/reading.py"
GROUPS = "leaderq/writing/groups.py"

HERE = "tests/integration/queues/"
FAIRNESS = f"{HERE}test_fairness.py::test_"
VALUES = f"{HERE}test_taken_values.py::test_"
CONSUMERS = f"{HERE}test_consumers.py::test_"
PENDING_TESTS = "tests/unit/queues/test_pending_names.py::test_"
LONG_LIFE = f"{HERE}test_long_life.py::test_"
DIES = (
    "tests/faults/queues/test_deaths_are_counted.py"
    "::test_an_item_over_which_consumers_die_is_set_aside_and_no_other"
)

MUTANTS = [
    mutant(
        "a multi of a queue is as large as a server accepts",
        f"{HERE}test_kind_to_the_server.py::test_traffic_leaves_a_server_at_most_100_mb_more_than_single_creates_do"
        "[256-put_many]",
        Edit(GROUPS, "MULTI_BYTES = 64 * 1024\n", "MULTI_BYTES = 768 * 1024\n"),
        Edit(GROUPS, "MULTI_OPS = 256\n", "MULTI_OPS = 1000\n"),
    ),
    mutant(
        "nothing pushes large items out of a server's last transactions",
        f"{HERE}test_kind_to_the_server.py::test_large_items_that_stay_cost_a_server_no_more_than_single_creates_do[256-80]",
        Edit(GROUPS, "self._small_due += batch.size // self._max_bytes", "self._small_due += 0"),
    ),
    mutant(
        "items are read without asking for their sizes",
        "tests/unit/queues/test_read_sizes.py::test_a_run_of_large_items_is_never_read_together_wherever_it_begins",
        Edit(READING, "        return [*sampled, count - 1]\n", "        return []\n"),
    ),
    mutant(
        "what is not of its own share a consumer leaves lying",
        f"{FAIRNESS}a_free_consumer_takes_what_another_leaves_lying_while_the_flow_lasts[hung-/locks]",
        Edit(PENDING, "        del self._others[begin:end]\n", "        return []\n"),
    ),
    mutant(
        "what is left to a member that is not at work waits for it again and again",
        f"{FAIRNESS}a_free_consumer_leaves_nothing_any_more_to_one_that_hangs",
        Edit(ENGINE, "share.note(won, [*found.gone, *found.locked])", "share.note([], [])"),
    ),
    mutant(
        "what was free again stands behind younger names",
        f"{PENDING_TESTS}what_is_left_last_and_is_the_oldest_is_waited_for",
        Edit(
            PENDING,
            "            insort(self._others, name, key=self._key)\n",
            "            self._others.append(name)\n",
        ),
    ),
    mutant(
        "nothing is read before it is listed",
        f"{FAIRNESS}what_comes_to_an_idle_consumer_is_read_while_the_queue_is_listed",
        Edit(LISTING, "self._reader.read_few(guesses) if guesses else None", "None"),
    ),
    mutant(
        "the watches of a session keep closed consumers alive",
        f"{LONG_LIFE}a_session_keeps_nothing_of_consumers_that_were_closed[/locks]",
        Edit(LISTING, "    reference = WeakMethod(method)\n", "    reference = lambda: method\n"),
    ),
    mutant(
        "priority queues are shared out as well",
        f"{FAIRNESS}the_most_urgent_item_is_begun_next_by_whoever_is_free",
        Edit(
            ENGINE,
            "return self._members.share if self._is_shared_out else None",
            "return self._members.share",
        ),
    ),
    mutant(
        "a stuck consumer keeps what it has claimed ahead",
        f"{HERE}test_claim_ahead.py::"
        "test_what_a_stuck_consumer_without_a_lock_path_has_taken_ahead_goes_to_others_in_its_place",
        Edit(
            ENGINE,
            "if self.ready and self.ready.busy_s() > STUCK_S and not self._is_simple:",
            "if membership.is_locking and self.ready and self.ready.busy_s() > STUCK_S:",
        ),
    ),
    mutant(
        "the first value of a znode that is acknowledged takes the others along",
        f"{VALUES}a_loop_over_take_sees_every_value_and_the_znode_goes_with_the_last[/locks]",
        Edit(
            CONSUMPTION,
            "settlement = None if taken.open else self._queue.settlement_of(taken)",
            "taken.open.clear()\n        settlement = self._queue.settlement_of(taken)",
        ),
    ),
    mutant(
        "a value acknowledged with operations stays in its znode",
        f"{VALUES}a_value_acknowledged_with_operations_is_written_off_with_them",
        Edit(
            CONSUMPTION,
            "own = rewritten(claim, taken.remaining)",
            "own = ()",
        ),
    ),
    mutant(
        "a claim does not say which items it holds",
        f"{DIES}[0-2]",
        Edit(
            DEATHS,
            "() if self._own is None else (SetData",
            "() if True else (SetData",
        ),
    ),
    mutant(
        "deaths are noted and not counted",
        f"{DIES}[40-3]",
        Edit(DEATHS, "        return len(sizes) if 1 in sizes else 0\n", "        return 0\n"),
    ),
    mutant(
        "the guard of a consumer outlives its session",
        f"{HERE}test_consuming.py::test_an_acknowledgement_after_the_session_is_over_writes_nothing",
        Edit(
            MEMBERS,
            "ephemeral=True, data=self._name.encode()",
            "ephemeral=False, data=self._name.encode()",
        ),
    ),
    mutant(
        "a claim stands until a thread has noted the end of its session",
        f"{CONSUMERS}no_claim_stands_from_the_moment_on_when_the_end_of_its_session_is_heard_of",
        Edit(MEMBERS, "membership.session_id == self._session.id and not is_over", "not is_over"),
    ),
    mutant(
        "what other consumers there are is not asked again when the answer was lost",
        f"{CONSUMERS}other_consumers_are_counted_although_the_first_answer_was_lost",
        Edit(
            MEMBERS, "            self._is_stale = True\n            raise\n", "            raise\n"
        ),
    ),
    mutant(
        "an operator's wish is not asked again when the answer was lost",
        f"{CONSUMERS}an_operators_pause_is_heeded_although_the_first_answer_was_lost",
        Edit(
            PAUSING, "            self._is_stale = True\n            raise\n", "            raise\n"
        ),
    ),
    mutant(
        "a name that became free again is claimed twice at once",
        f"{PENDING_TESTS}an_overdue_name_that_became_free_again_is_taken_once",
        Edit(PENDING, "dict.fromkeys(self._others[begin:end])", "list(self._others[begin:end])"),
    ),
    mutant(
        "an item that is known not to have killed goes alone all the same",
        "tests/unit/queues/test_death_records.py::"
        "test_what_was_held_at_two_deaths_is_a_suspect_until_it_is_known_over_what_they_died",
        Edit(DEATHS, "name in held and not held & told", "name in held and name not in told"),
    ),
    mutant(
        "an error of ours in a consumer is read as the end of the queue",
        f"{HERE}test_user_code.py::test_an_error_of_ours_that_escapes_a_consumer_is_a_failure_like_any_other[False-/locks]",
        Edit(
            WORKERS,
            "            except ConsumerClosed:  # a blocking consumer",
            "            except Exception:  # a blocking consumer",
        ),
        may_hang=True,
    ),
    mutant(
        "a guard counts until its version runs over",
        f"{LONG_LIFE}a_guard_is_made_again_before_its_version_runs_over[None]",
        Edit(GROUPS, "        if self.number >= RENEW_AT:\n            return False\n", ""),
        Edit(
            GROUPS,
            "        return not (self.number < RENEW_AT or",
            "        return False and not (self.number < RENEW_AT or",
        ),
    ),
    mutant(
        "what is given back is found again by its watch only",
        f"{HERE}test_claim_ahead.py::test_what_is_given_back_is_found_again_if_its_return_is_heard_of_before_it_is_confirmed",
        Edit(ENGINE, "self._waiting.give_back([settlement.created(results) or name])", "pass"),
    ),
    mutant(
        "what was read ahead outlives the path",
        f"{HERE}test_simple_queue.py::test_what_was_read_ahead_of_a_path_that_was_made_again_is_not_given_for_its_new_items",
        Edit(LISTING, "            self._waiting.restart()\n", ""),
        Edit(LISTING, "        self.known = {}\n        self._changed", "        self._changed"),
    ),
    mutant(
        "what is claimed when the connection is lost is in nobody's hands",
        f"{HERE}test_claim_ahead.py::test_what_was_claimed_when_the_connection_was_lost_is_worked_on",
        Edit(
            ENGINE,
            "        finally:  # they are ours",
            "        except ZeroDivisionError:  # they are ours",
        ),
    ),
    mutant(
        "a paused consumer keeps what it has claimed ahead",
        f"{HERE}test_claim_ahead.py::test_a_consumer_that_is_paused_holds_nothing_that_it_has_not_begun[/locks]",
        Edit(
            ENGINE,
            "            self._give_back_ahead()\n            self.ready.answer",
            "            self.ready.answer",
        ),
    ),
    mutant(
        "names of two listings close to each other are left to their owner for ever",
        f"{PENDING_TESTS}what_came_right_after_a_listing_is_anybodys_after_50_ms_though_nothing_comes_later",
        Edit(PENDING, "        self._marks.append(", "        self._marks or self._marks.append("),
    ),
    mutant(
        "an item is claimed ahead before any is done",
        f"{PENDING_TESTS}nothing_is_claimed_ahead_before_an_item_is_done",
        Edit(
            PREFETCH,
            "        if self.average_s is not None:\n",
            "        if self.average_s or [setattr(self, 'average_s', 1e-3)]:\n",
        ),
    ),
    mutant(
        "an item of a simple queue is given back to the end, in a frame",
        f"{HERE}test_simple_queue_faults.py::test_items_claimed_ahead_come_in_order_and_the_rest_goes_back",
        Edit(SETTLING, "elif in_place or claim.is_raw:", "elif in_place:"),
        Edit(SETTLING, "claim.data if claim.is_raw else _encoded(", "_encoded("),
    ),
    mutant(
        "what is claimed when closing is over is in nobody's hands",
        f"{HERE}test_consumers.py::test_what_is_claimed_when_closing_is_over_goes_back[None]",
        Edit(
            ENGINE,
            "        if self.ready.is_closed:\n            self._give_back",
            "        if False:\n            self._give_back",
        ),
    ),
]
