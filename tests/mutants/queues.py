"""The mutants of ``leaderq.queues``: claim, settle and guard."""

from __future__ import annotations

from mutants.mutant import Edit, mutant

ENGINE = "leaderq/queues/consuming/engine.py"
CLAIMS = "leaderq/queues/consuming/claims.py"
CONSUMPTION = "leaderq/queues/consuming/consumption.py"
LISTING = "leaderq/queues/consuming/listing.py"
MEMBERS = "leaderq/queues/consuming/members.py"
PENDING = "leaderq/queues/consuming/pending.py"
PREFETCH = "leaderq/queues/consuming/prefetch.py"
SETTLING = "leaderq/queues/consuming/settling.py"
WORKERS = "leaderq/queues/consuming/workers.py"
RECIPES = "leaderq/queues/recipes.py"
CONTENTS = "leaderq/queues/admin/contents.py"
READING = "leaderq/reading.py"
GROUPS = "leaderq/writing/groups.py"
WRITER = "leaderq/writing/writer.py"
REQUESTS = "leaderq/zookeeper/requests.py"

HERE = "tests/integration/queues/"
FAIRNESS = f"{HERE}test_fairness.py::test_"
VALUES = f"{HERE}test_taken_values.py::test_"
CONSUMERS = f"{HERE}test_consumers.py::test_"
FROZEN = f"{HERE}test_frozen_consumers.py::test_who_was_frozen_begins_nothing_that_another_may_have"
RUDE = f"{HERE}test_rude_surroundings.py::test_"
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
        "a claim of long names has as many items as one of short names",
        f"{HERE}test_kind_to_the_server.py"
        "::test_multis_of_puts_claims_and_settlements_have_at_most_128_kb[/locks-250]",
        Edit(ENGINE, "_NAMES_BYTES = 16 * 1024\n", "_NAMES_BYTES = 1 << 30\n"),
    ),
    mutant(
        "as much is under way as there is",
        f"{HERE}test_kind_to_the_server.py::test_a_writer_has_at_most_4_mb_and_one_multi_under_way",
        Edit(WRITER, "            window_bytes=WINDOW_BYTES,\n", ""),
    ),
    mutant(
        "as many bytes are claimed ahead as the consumer handles in 50 ms",
        f"{HERE}test_kind_to_the_server.py"
        "::test_nothing_is_claimed_ahead_while_4_mb_wait_to_be_begun",
        Edit(ENGINE, "if self.ready.bytes > AHEAD_BYTES:", "if False:"),
    ),
    mutant(
        "items are read without asking for their sizes",
        "tests/unit/queues/test_read_sizes.py::test_a_run_of_large_items_is_never_read_together_wherever_it_begins",
        Edit(READING, "        return [*sampled, count - 1]\n", "        return []\n"),
    ),
    mutant(
        "the sizes of items are asked for and not noted",
        f"{HERE}test_kind_to_the_server.py"
        "::test_taking_from_a_simple_queue_and_browsing_ask_for_a_megabyte_at_a_time",
        Edit(REQUESTS, "sizes.append(0 if raw is None else raw.dataLength)", "sizes.append(0)"),
    ),
    mutant(
        "names that may be there are read together though nothing is known of their sizes",
        f"{HERE}test_kind_to_the_server.py"
        "::test_large_items_that_come_before_their_sizes_are_known_are_read_one_by_one[0]",
        Edit(READING, "names[: 1 if self.sizes.is_careful else self.most]", "names[: self.most]"),
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
        "what is claimed next is read when the claim has come back",
        f"{FAIRNESS}what_is_claimed_next_was_read_before",
        Edit(ENGINE, "                self._read_next()\n", "                pass\n"),
    ),
    mutant(
        "any lock that comes or goes has the queue listed again",
        f"{FAIRNESS}a_lock_that_comes_or_goes_is_no_reason_to_list_again",
        Edit(
            LISTING,
            "if not self.is_lock_changed or not self._held:",
            "if not self.is_lock_changed:",
        ),
    ),
    mutant(
        "overdue names are tried without a look at the locks",
        f"{FAIRNESS}what_its_owner_works_on_for_long_is_not_tried_by_others",
        Edit(
            ENGINE,
            "self._listing.is_lock_changed and self._waiting.has_overdue(clock.now_ms())",
            "False",
        ),
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
        "delay queues are shared out as well",
        f"{FAIRNESS}under_a_flow_what_is_most_urgent_and_due_is_begun_next_by_whoever_of_several_is_free"
        "[DistributedDelayQueue]",
        Edit(ENGINE, "kind in (QueueKind.PLAIN, QueueKind.ID)", "kind is not QueueKind.PRIORITY"),
    ),
    mutant(
        "a stuck consumer keeps what it has claimed ahead",
        f"{HERE}test_claim_ahead.py::"
        "test_items_claimed_ahead_by_a_stuck_consumer_without_a_lock_path_go_to_others_in_place",
        Edit(
            ENGINE,
            "if self.ready and self.ready.busy_s() > HANGS_S and not self._is_simple:",
            "if membership.is_locking and self.ready and self.ready.busy_s() > HANGS_S:",
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
        "values of a znode that nobody asks for are kept for ever",
        f"{VALUES}values_that_nobody_asks_for_go_to_others_once_none_of_their_znode_is_in_hand"
        "[/locks]",
        Edit(ENGINE, "        self._has_taken = self.give_back_idle()\n", ""),
        may_hang=True,
    ),
    mutant(
        "values of a znode go back while another of them is in hand",
        f"{VALUES}values_that_nobody_asks_for_wait_while_another_of_their_znode_is_in_hand[/locks]",
        Edit(CONSUMPTION, "len(znode.open) != count", "False"),
    ),
    mutant(
        "a paused queue keeps the values of a znode that were not taken",
        f"{VALUES}a_paused_queue_hands_out_no_further_value_of_a_znode_and_keeps_none[False-/locks]",
        Edit(CONSUMPTION, "if self.engine.pause_switch.is_paused or (", "if False or ("),
        Edit(CONSUMPTION, "if not is_paused and self.engine", "if self.engine"),
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
        f"{DIES}[0-2-2]",
        Edit(
            MEMBERS,
            "() if self._own is None else (SetData",
            "() if True else (SetData",
        ),
    ),
    mutant(
        "deaths are noted and not counted",
        f"{DIES}[40-2-3]",
        Edit(MEMBERS, "        return len(sizes) if 1 in sizes else 0\n", "        return 0\n"),
    ),
    mutant(
        "an item goes to the dead letters one death early",
        f"{DIES}[0-2-2]",
        Edit(
            SETTLING,
            "retry.is_exhausted(claim.failures):",
            "retry.is_exhausted(claim.failures + 1):",
        ),
    ),
    mutant(
        "the end of a session is counted as a death of its process",
        f"{HERE}test_consuming.py"
        "::test_a_session_that_ends_while_its_process_lives_is_not_counted_as_a_death",
        Edit(
            ENGINE,
            "        former.writer.close(0.0)\n        self._members.deaths.close()\n",
            "        former.writer.close(0.0)\n",
        ),
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
        "who was frozen begins what it had claimed before",
        f"{FROZEN}[push]",
        Edit(ENGINE, "not membership.is_locking or membership.writer.surely_stands()", "True"),
    ),
    mutant(
        "that a session stands is counted from the answer",
        f"{FROZEN}[take_answer]",
        Edit(WRITER, "max(self._proven_s, sent_s)", "clock.now_s()"),
    ),
    mutant(
        "what is taken is not asked whether it still stands",
        f"{FROZEN}[take_value]",
        Edit(CONSUMPTION, "engine.may_be_begun(item._claim)", "engine.is_ours(item._claim)"),
    ),
    mutant(
        "what is kept is tried again after a freeze",
        f"{FROZEN}[keep]",
        Edit(WORKERS, "if not work_in_hand.value.may_be_begun():", "if False:"),
    ),
    mutant(
        "what waits in a blocking consumer is taken after a freeze",
        f"{FROZEN}[blocking]",
        Edit("leaderq/queues/consumers.py", "if not entry.may_be_begun():", "if False:"),
    ),
    mutant(
        "an item that cannot be deleted is tried again before all others",
        f"{RUDE}an_item_that_cannot_be_had_or_removed_does_not_stop_its_neighbours[child-QueueKind.PLAIN-without]",
        Edit(
            CLAIMS,
            "            self._rest(culprit, error)\n",
            "            self._found.again.append(culprit)\n",
        ),
    ),
    mutant(
        "an item that cannot be read is tried again before all others",
        f"{RUDE}an_item_that_cannot_be_had_or_removed_does_not_stop_its_neighbours[unreadable-QueueKind.PLAIN-without]",
        Edit(CLAIMS, "self._rest(name, result)", "self._found.again.append(name)"),
    ),
    mutant(
        "what did not fit into a read rests as if it could not be read",
        f"{HERE}test_kind_to_the_server.py"
        "::test_what_did_not_fit_into_a_read_is_claimed_next_and_does_not_rest",
        Edit(CLAIMS, "            if name not in rows:", "            if False:"),
        Edit(CLAIMS, "result = rows[name]", "result = rows.get(name)"),
    ),
    mutant(
        "what was claimed behind unread items goes before them",
        f"{HERE}test_kind_to_the_server.py"
        "::test_what_did_not_fit_into_a_read_is_claimed_next_and_does_not_rest",
        Edit(ENGINE, "if found.again and not is_shared:", "if False:"),
    ),
    mutant(
        "an item that cannot be removed is worked on again and again",
        f"{RUDE}an_item_that_cannot_be_had_or_removed_does_not_stop_its_neighbours[child-QueueKind.PRIORITY-with-locks]",
        Edit(ENGINE, "if settlement.rest_until_ms:", "if False:"),
    ),
    mutant(
        "a consumer whose member was deleted keeps its locks and cannot settle",
        f"{RUDE}who_has_items_keeps_them_when_all_side_data_is_deleted[with-locks]",
        Edit(
            WRITER,
            "stat is None and not self._is_ephemeral_over()",
            "stat is None and not self.is_ephemeral",
        ),
    ),
    mutant(
        "a dead letter has its whole note, even if that is too large",
        f"{RUDE}the_largest_item_of_all_is_tried_again_and_set_aside_like_others[ErrorMode.KEEP-without]",
        Edit(SETTLING, "if len(data) <= room:", "if True:"),
    ),
    mutant(
        "what may not be set aside is lost without a lock path",
        f"{RUDE}what_may_not_be_set_aside_goes_back_and_is_not_lost[without]",
        Edit(
            ENGINE,
            "return self.is_ours(claim) and not isinstance(error, ConnectionLost)",
            "return claim.membership.is_locking",
        ),
    ),
    mutant(
        "a coroutine that a consumer returns is taken for work that is done",
        f"{RUDE}work_that_nobody_has_done_is_a_failure[consumer-coroutine]",
        Edit(
            WORKERS,
            'require_finished(options.on_value(values[0]), "consumer")',
            "options.on_value(values[0])",
        ),
    ),
    mutant(
        "a generator that a consumer of batches returns is taken for work that is done",
        f"{RUDE}work_that_nobody_has_done_is_a_failure[consume_batch-generator]",
        Edit(
            WORKERS,
            'require_finished(options.consume_batch(values[:step]), "consume_batch")',
            "options.consume_batch(values[:step])",
        ),
    ),
    mutant(
        "the child of a fork goes on with the values of the znode",
        f"{RUDE}a_child_that_comes_back_from_a_consumer_ends_and_does_nothing[without]",
        Edit(
            ENGINE, "if self.is_in_child or not self.is_ours(claim):", "if not self.is_ours(claim):"
        ),
    ),
    mutant(
        "the child of a fork waits for items for ever",
        f"{RUDE}a_child_that_comes_back_from_a_consumer_ends_and_does_nothing[with-locks]",
        Edit(WORKERS, "if engine.is_in_child:", "if False:"),
        may_hang=True,
    ),
    mutant(
        "Ctrl-C during the reading of an item is taken for a fault of the item",
        f"{RUDE}ctrl_c_while_an_item_is_read_is_heard_and_costs_no_item[with-locks]",
        Edit(WORKERS, "if is_interrupt(exc):", "if False:"),
    ),
    mutant(
        "a task that is cancelled as the queue starts leaves it running",
        f"{RUDE}a_task_that_is_cancelled_as_the_queue_starts_leaves_nothing_that_consumes",
        Edit(
            "leaderq/queues/async_queue.py",
            "            self._writes.submit(self.queue.close)\n",
            "",
        ),
        may_hang=True,
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
            MEMBERS,
            "        self._read_if_stale(self._read)\n",
            "        if self._is_stale:\n"
            "            self._is_stale = False\n"
            "            self._read()\n",
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
        Edit(MEMBERS, "name in held and not held & told", "name in held and name not in told"),
    ),
    mutant(
        "a serializer that exits takes the worker along",
        f"{HERE}test_user_code.py::test_a_serializer_may_raise_what_it_likes_and_costs_one_item[exit-/locks]",
        Edit(
            WORKERS,
            "        except BaseException as exc:\n            if is_interrupt",
            "        except Exception as exc:\n            if is_interrupt",
        ),
        may_hang=True,
    ),
    mutant(
        "an error of ours in a consumer is read as the end of the queue",
        f"{HERE}test_user_code.py::test_an_error_of_ours_that_escapes_a_consumer_is_a_failure_like_any_other[False-QueueClosed-/locks]",
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
        "who only consumes opens a guard for puts",
        f"{LONG_LIFE}a_consumer_that_puts_nothing_writes_nothing_for_puts",
        Edit(RECIPES, "is_opened=not self._consumption.is_pushed", "is_opened=True"),
    ),
    mutant(
        "an operator leaves a guard's folders beside a queue of Java's",
        f"{HERE}test_queue_admin.py::test_a_purge_deletes_what_is_free_and_leaves_foreign_and_locked_ones",
        Edit(CONTENTS, "        if meta_is_new:", "        if False:"),
    ),
    mutant(
        "of several takers of a simple queue the quickest gets everything",
        f"{HERE}test_simple_queue.py::test_no_taker_goes_empty_handed_because_others_are_quicker[20]",
        Edit(ENGINE, "        if self._is_simple and self._losses:", "        if False:"),
    ),
    mutant(
        "what is released is found again by its watch only",
        f"{HERE}test_claim_ahead.py::test_what_is_released_is_found_again_if_its_return_is_heard_of_before_it_is_confirmed[/q-locks]",
        Edit(ENGINE, "self._waiting.release([released])", "pass"),
    ),
    mutant(
        "what was read ahead outlives the path",
        f"{HERE}test_simple_queue.py::test_items_read_ahead_are_not_handed_out_for_new_ones_when_the_path_was_made_again",
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
            "            self._release_ahead()\n            self.ready.answer",
            "            self.ready.answer",
        ),
    ),
    mutant(
        "names of two listings close to each other are left to their owner for ever",
        f"{PENDING_TESTS}an_item_put_right_after_a_listing_is_anybodys_after_50_ms_though_nothing_follows",
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
        "nothing goes before a newcomer, whatever slack there is",
        "tests/unit/queues/test_prefetch.py"
        "::test_so_many_are_handed_out_before_a_newcomer_that_is_more_urgent[3]",
        Edit(PREFETCH, "self._since_refresh >= self._slack", "True"),
    ),
    mutant(
        "what is claimed ahead keeps the workers busy for ten times as long",
        "tests/unit/queues/test_prefetch.py"
        "::test_what_the_workers_do_in_50_ms_is_claimed_ahead_and_at_most_100_values",
        Edit(PREFETCH, "AHEAD_S = 0.05\n", "AHEAD_S = 0.5\n"),
    ),
    mutant(
        "what others have claimed ahead can be taken back by its name",
        f"{HERE}test_names_of_puts.py"
        "::test_what_is_claimed_ahead_is_not_taken_back_and_everything_else_is[/locks]",
        Edit(
            CONTENTS,
            "    if paths.lock_path is None:\n        return [item]",
            "    if True:\n        return [item]",
        ),
    ),
    mutant(
        "an item of a simple queue is released to the end, in a frame",
        f"{HERE}test_simple_queue_faults.py::test_items_claimed_ahead_come_in_order_and_the_rest_goes_back",
        Edit(SETTLING, "elif in_place or claim.is_raw:", "elif in_place:"),
        Edit(SETTLING, "claim.data if claim.is_raw else _encoded(", "_encoded("),
    ),
    mutant(
        "what is claimed when closing is over is in nobody's hands",
        f"{HERE}test_consumers.py::test_what_is_claimed_when_closing_is_over_goes_back[None]",
        Edit(
            ENGINE,
            "        if self.ready.is_closed:\n            self._release",
            "        if False:\n            self._release",
        ),
    ),
]
