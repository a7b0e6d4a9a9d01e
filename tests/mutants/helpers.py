"""The mutants of ``leaderq.singular`` and ``leaderq.coalescing``: full means full, covered means
covered.
"""

from __future__ import annotations

from mutants.mutant import Edit, mutant

MAILBOX = "leaderq/singular/mailbox.py"
QUEUE = "leaderq/singular/queue.py"
FUTURE = "leaderq/singular/request.py"
WRITER = "leaderq/singular/writer.py"
ASYNCHRONOUS = "leaderq/coalescing/asynchronous.py"
COORDINATOR = "leaderq/coalescing/coordinator.py"
KEY_TABLE = "leaderq/coalescing/key_table.py"
TIMER = "leaderq/coalescing/timer.py"
REQUEST = "leaderq/coalescing/distributed/request.py"
RELEASES = "leaderq/coalescing/distributed/background.py"
COVERAGE = "leaderq/coalescing/distributed/background.py"
SLOTS = "leaderq/coalescing/distributed/slots.py"

FULL = "tests/unit/singular/test_singular_full.py::test_"
RUDE_QUEUE = "tests/unit/singular/test_singular_rude.py::test_"
RUDE = "tests/unit/coalescing/test_coordinator_rude.py::test_"
CLOSING = "tests/unit/singular/test_singular_closing.py::test_"
COVERED = "tests/unit/coalescing/test_coordinator_coverage.py::test_"
TIME = "tests/unit/coalescing/test_coordinator_time.py::test_"
PROCESSES = "tests/integration/coalescing/test_distributed_processes.py::test_"
TURNS = "tests/integration/coalescing/test_distributed_turns.py::test_"
FAR = "tests/integration/coalescing/test_distributed_coverage.py::test_"

MUTANTS = [
    mutant(
        "a queue is unbounded unless it is told otherwise",
        f"{FULL}a_queue_is_bounded_unless_it_is_told_otherwise",
        Edit(QUEUE, "CAPACITY = 10_000\n", "CAPACITY = None\n"),
    ),
    mutant(
        "who waits for room is not admitted when a request is taken out",
        f"{FULL}one_who_waits_proceeds_as_soon_as_there_is_room_for_one",
        Edit(MAILBOX, "        if self.waiting:\n            self.admit()\n", ""),
        may_hang=True,
    ),
    mutant(
        "a cancelled call may go on",
        f"{FULL}a_cancelled_call_is_cancelled_whenever_that_comes",
        Edit(
            MAILBOX,
            "            await woken.wait()\n",
            "            await asyncio.wait_for(woken.wait(), timeout_s)\n",
        ),
        may_hang=True,
    ),
    mutant(
        "an interrupt between permit and request costs a place for good",
        f"{FULL}an_interrupt_withdraws_the_request_and_costs_no_room[putting]",
        Edit(
            MAILBOX,
            "            if has_permit:  # Ctrl-C came in between\n",
            "            if False:\n",
        ),
    ),
    mutant(
        "a request that got in after the writer had ended is forgotten",
        f"{CLOSING}a_request_put_by_a_thread_held_up_until_the_writer_was_over_is_told",
        Edit(
            QUEUE,
            "            self._put(item, wait_s)\n        elif self._mailbox.has_ended:\n",
            "            self._put(item, wait_s)\n        elif False:\n",
        ),
    ),
    mutant(
        "a signal handler waits for room under the lock of the post that it interrupted",
        f"{RUDE_QUEUE}a_signal_handler_that_posts_to_a_full_queue_in_the_midst_of_a_post_is_not_stuck",
        Edit(
            MAILBOX,
            "            if is_nested or self._home.is_mine:\n",
            "            if self._home.is_mine:\n",
        ),
        may_hang=True,
    ),
    mutant(
        "the request that a writer waited for when it was killed is nobody's",
        f"{RUDE_QUEUE}a_writer_killed_while_it_waits_tells_whoever_comes_next[None]",
        Edit(
            WRITER,
            "        self._taken.extend(starmap(mailbox.take, _ONCE))\n",
            "        self._taken.append(mailbox.take())\n",
        ),
        may_hang=True,
    ),
    mutant(
        "an error that many share keeps the frames of all who raised it",
        f"{RUDE}an_error_that_many_share_does_not_grow_with_them",
        Edit(
            "leaderq/coalescing/token.py",
            "with_traceback(self.traceback)",
            "with_traceback(self.error.__traceback__)",
        ),
    ),
    mutant(
        "a callback that raises what nobody expects ends the queue",
        f"{RUDE_QUEUE}a_callback_that_raises_anything_is_its_owners_business[Rude]",
        Edit(
            FUTURE,
            "super().add_done_callback(partial(self._call_back, fn))",
            "super().add_done_callback(fn)",
        ),
        may_hang=True,
    ),
    mutant(
        "an outcome that somebody else has set ends the queue",
        f"{RUDE_QUEUE}an_outcome_set_by_somebody_else_costs_nobody_his[None]",
        Edit(
            FUTURE,
            "        except primitives.InvalidStateError:\n",
            "        except ZeroDivisionError:\n",
        ),
        may_hang=True,
    ),
    mutant(
        "who awaits a handler that raises StopIteration waits for ever",
        f"{RUDE_QUEUE}whatever_a_handler_raises_reaches_its_caller_and_the_queue_goes_on[StopIteration]",
        Edit(FUTURE, "        if isinstance(error, StopIteration):", "        if False:"),
        may_hang=True,
    ),
    mutant(
        "a call that raises what nobody expects keeps the key",
        f"{RUDE}a_call_that_raises_anything_gives_the_key_back_and_the_one_who_called_hears_of_it[Rude]",
        Edit(
            KEY_TABLE,
            "            self.leave(token)\n        except BaseException:\n"
            "            self.drop(token)\n",
            "            self.leave(token)\n        except BaseException:\n",
        ),
    ),
    mutant(
        "a call that raises what nobody expects ends the thread that ends debounce windows",
        f"{RUDE}a_call_that_raises_anything_does_not_end_the_timer[SystemExit]",
        Edit(TIMER, "except BaseException:", "except Exception:"),
        may_hang=True,
    ),
    mutant(
        "a cover that raises what nobody expects is called again without end",
        f"{RUDE}a_cover_that_raises_anything_gives_the_key_back[Rude]",
        Edit(KEY_TABLE, "if cover is not None and not debt.is_tried:", "if cover is not None:"),
    ),
    mutant(
        "a cover that asks for its own key waits for itself",
        f"{RUDE}a_cover_that_asks_for_the_key_it_holds_does_not_wait_for_itself",
        Edit(COORDINATOR, "        token.owner = primitives.get_ident()\n", ""),
        may_hang=True,
    ),
    mutant(
        "a key keeps the task of a closed loop, which never gives it back",
        f"{RUDE}a_loop_closed_while_its_task_runs_gives_the_key_back",
        Edit(ASYNCHRONOUS, "return None if task is None else weakref.ref(task)", "return task"),
    ),
    mutant(
        "a loop that ends before a cover has begun keeps the key",
        f"{RUDE}a_loop_that_ends_before_or_in_a_cover_leaves_the_debt_to_the_next_request[0]",
        Edit(
            ASYNCHRONOUS,
            "        if token:\n            self._keys.drop(",
            "        if False:\n            self._keys.drop(",
        ),
        may_hang=True,
    ),
    mutant(
        "a loop closed in a cover keeps the key",
        f"{RUDE}a_loop_closed_in_a_cover_leaves_the_debt_to_the_next_loop",
        Edit(ASYNCHRONOUS, "if its_loop.is_closed():", "if False:"),
    ),
    mutant(
        "a forked child waits for what ran in its parent",
        f"{RUDE}a_forked_child_has_no_keys_whatever_its_parent_was_doing",
        Edit(COORDINATOR, "        _all.add(self)\n", ""),
        may_hang=True,
    ),
    mutant(
        "a waiter that gives up takes along those it covered",
        f"{COVERED}the_next_to_come_takes_the_debt_over_whether_it_waits_or_runs",
        Edit(KEY_TABLE, "        if gives_up and (count", "        if False and (count"),
    ),
    mutant(
        "whoever waits begins while another process runs",
        f"{PROCESSES}sixteen_processes_whose_waiters_give_up_and_die_leave_no_declined_request_uncovered",
        Edit(
            REQUEST,
            "        return stat.czxid > mine.number\n",
            "        return True\n",
        ),
    ),
    mutant(
        "two wait, give up or not",
        f"{COVERED}a_hundred_threads_whose_waiters_give_up_and_die_leave_no_declined_request_uncovered",
        Edit(KEY_TABLE, "KeyState(self.rules.waiters)", "KeyState(self.rules.waiters + 1)"),
    ),
    mutant(
        "a drain leaves declined requests uncovered in silence",
        f"{COVERED}a_drain_that_leaves_declined_requests_uncovered_says_how_many",
        Edit(KEY_TABLE, "                self._uncovered[key] += lost\n", ""),
    ),
    mutant(
        "a turn that came to a cancelled task counts as a run",
        f"{COVERED}a_turn_that_came_to_a_cancelled_task_is_covered_by_another",
        Edit(KEY_TABLE, " or (was_current and not has_run)", ""),
    ),
    mutant(
        "a head does not run again for a debt",
        f"{COVERED}whoever_runs_by_its_function_runs_again_and_returns_its_first_result[run]",
        Edit(
            KEY_TABLE,
            "        if may_repeat and was_current and",
            "        if False and",
        ),
    ),
    mutant(
        "of two debts with values the first is forgotten",
        f"{COVERED}several_who_give_up_leave_all_the_values_that_were_merged_into_theirs",
        Edit(KEY_TABLE, "(*state.debts, debt)", "(debt,)"),
    ),
    mutant(
        "a key that is idle again stays with the timer",
        f"{TIME}contended_keys_that_are_idle_again_are_not_kept_for_the_safe_time_out",
        Edit(KEY_TABLE, "            self.timer.forget(key)\n", "            pass\n"),
    ),
    mutant(
        "the timer keeps an entry for each time a key is watched",
        f"{TIME}a_timer_keeps_one_entry_a_key_and_none_for_what_is_forgotten",
        Edit(TIMER, " or (known is not None and known[0] <= due_s)", ""),
    ),
    mutant(
        "a waiter looks a second time when the other slot was deleted",
        f"{TURNS}a_hand_over_needs_one_look_and_no_second",
        Edit(REQUEST, "watch=self._on_watch)", "watch=lambda _: self.wake())"),
    ),
    mutant(
        "a waiter that was evicted may be told that it is the head",
        f"{TURNS}an_evicted_waiter_is_told",
        Edit(REQUEST, ", watch=self._on_own_watch)", ")"),
    ),
    mutant(
        "the lease of a token counts from after its renewal was sent",
        f"{TURNS}the_lease_counts_from_before_the_sending_however_long_that_takes",
        Edit(
            RELEASES,
            "            answer = self._session.multi_async([check for check, _ in part])\n",
            "            answer = self._session.multi_async([check for check, _ in part])\n"
            "            sent_s = clock.now_s()\n",
        ),
    ),
    mutant(
        "across processes, those declined for a waiter that gives up are forgotten",
        f"{FAR}if_the_waiter_gives_up_whoever_was_declined_runs",
        Edit(
            COVERAGE,
            "            self._owed[self._watched.pop(token)] = object()\n",
            "            self._watched.pop(token)\n",
        ),
    ),
    mutant(
        "across processes, who is declined while another is being covered is forgotten",
        f"{FAR}who_is_declined_while_another_is_being_covered_is_covered_after_it",
        Edit(COVERAGE, "            if self._owed.get(key) is mark:", "            if True:"),
    ),
    mutant(
        "a waiter that begins does not say so, and others run in vain",
        f"{FAR}a_waiter_that_begins_covers_and_nobody_runs_needlessly",
        Edit(
            REQUEST,
            "        self._session.set_async("
            "self.fence.path, self._who(begun=clock.calendar_s()))\n",
            "        pass\n",
        ),
    ),
    mutant(
        "across processes, a thread that has a key waits for itself",
        f"{TURNS}whoever_asks_for_the_key_that_it_has_is_told_at_once_and_leaves_no_place_taken",
        Edit(
            "leaderq/coalescing/distributed/coordinator.py",
            "                one.owner == primitives.get_ident() and one.znodes == znodes\n",
            "                one.owner == -1 and one.znodes == znodes\n",
        ),
        may_hang=True,
    ),
    mutant(
        "of three readings at different moments somebody is declined",
        "tests/unit/coalescing/test_distributed_slots.py::"
        "test_nobody_is_declined_unless_somebody_waits_at_some_moment_of_the_looking",
        Edit(
            SLOTS,
            "    if first is not None and first.number == again.number:\n",
            "    if first is not None:\n",
        ),
    ),
]
