"""The mutants of ``leaderq.election`` and ``leaderq.term``."""

from __future__ import annotations

from mutants.mutant import Edit, mutant

CAMPAIGN = "leaderq/election/campaign.py"
CANDIDATE = "leaderq/election/candidate.py"
DECISION = "leaderq/election/decision.py"
ENLISTMENT = "leaderq/election/enlistment.py"
LAYOUT = "leaderq/election/layout.py"
LEASE = "leaderq/election/tenure.py"
TENURE = "leaderq/election/tenure.py"
TERM = "leaderq/term.py"

BUG = "tests/faults/election/test_bugs_1_to_13.py::test_bug_"
LATER_BUG = "tests/faults/election/test_bugs_14_to_28.py::test_bug_"
CANDIDATES = "tests/integration/election/test_candidates.py::test_"
ENDS = "tests/integration/election/test_terms_and_their_ends.py::test_"
RUNNERS = "tests/integration/running/test_runner.py::test_"
TABLE = "tests/unit/election/test_decision.py::test_"
EMPTIED = "tests/integration/zookeeper/test_emptied_server.py::test_"
PURE_RECORDS = "tests/unit/election/test_records.py::test_"
PURE_LEASE = "tests/unit/election/test_lease.py::test_"
PURE_TERM = "tests/unit/test_term.py::test_"

_IS_OURS = "return stat is not None and bool(stat.ephemeral_owner == self._owner)"

PLACE = [
    mutant(
        "another session's znode is adopted",
        f"{BUG}09_a_session_replaced_between_look_and_claim_wins_nothing",
        Edit(ENLISTMENT, _IS_OURS, "return stat is not None"),
    ),
    mutant(
        "another session's znode is adopted, since its mark is kept",
        f"{BUG}01_a_new_session_never_adopts_the_old_sessions_znode",
        Edit(ENLISTMENT, _IS_OURS, "return stat is not None"),
        Edit(
            ENLISTMENT,
            "if self._owner is not None and self._owner != self._session.id:",
            "if False:",
        ),
    ),
    mutant(
        "surplus znodes of a creation whose answer was lost are kept",
        f"{BUG}06_a_znode_made_twice_is_deleted",
        Edit(ENLISTMENT, "for surplus in self.position.surplus:", "for surplus in ():"),
    ),
    mutant(
        "nothing of earlier candidacies is swept",
        f"{BUG}06_a_lost_deletion_is_repeated",
        Edit(ENLISTMENT, "if any(mark in name for mark in self._left):", "if False:"),
    ),
    mutant(
        "what an earlier session left in the line is waited for",
        f"{LATER_BUG}19_a_ghost_sessions_znode_is_neither_adopted_nor_waited_for",
        Edit(
            ENLISTMENT,
            "            self._sweep(names)\n            if position_of",
            "            if position_of",
        ),
    ),
    mutant(
        "the folder of the line is made once and not again",
        f"{BUG}04_the_line_vanished_between_two_terms",
        Edit(
            ENLISTMENT,
            "self._session.ensure_path(self._layout.candidates, shared",
            "self._owner or self._session.ensure_path(self._layout.candidates, shared",
        ),
    ),
    mutant(
        "a survey that finds no folder is only tried again",
        f"{BUG}04_the_line_vanished_under_those_in_it",
        Edit(
            ENLISTMENT,
            "        except NoNode:\n            return Input.ABSENT\n",
            "        except NoNode:\n            return Input.FAILED\n",
        ),
    ),
    mutant(
        "the line is not looked at when a watch fires",
        f"{BUG}13_the_end_of_the_one_in_front_is_heard_at_once",
        Edit(
            ENLISTMENT,
            "            self._watched = None\n        self._changed()\n",
            "            self._watched = None\n",
        ),
    ),
    mutant(
        "nothing is looked at after a time in which no watch has fired",
        f"{BUG}13_a_watch_that_never_fires_is_outwaited",
        Edit(
            CAMPAIGN,
            "self._retry_at_s = clock.now_s() + self._session.timeout_s",
            "self._retry_at_s = None",
        ),
    ),
    mutant(
        "nothing is looked at after a reconnection",
        f"{BUG}13_the_one_in_front_ended_while_nobody_was_connected",
        Edit(
            DECISION,
            "        Input.RETRY: _LOOK,\n        Input.CONNECTED: _LOOK,\n",
            "        Input.RETRY: _LOOK,\n",
        ),
        Edit(
            ENLISTMENT,
            "            self._watched = None\n        self._changed()\n",
            "            self._watched = None\n        if event.kind is WatchKind.DELETED:\n       "
            "     self._changed()\n",
        ),
    ),
    mutant(
        "a watch that fires after the withdrawal makes a znode",
        f"{BUG}05_a_watch_that_fires_after_close_makes_no_znode",
        Edit(
            DECISION,
            "        Input.STAND: (Role.ENLISTING, (Effect.ENLIST,)),\n    },",
            "        Input.STAND: (Role.ENLISTING, (Effect.ENLIST,)),\n"
            "        Input.CHANGED: (Role.ENLISTING, (Effect.ENLIST,)),\n    },",
        ),
    ),
    mutant(
        "a release that failed is not tried again",
        f"{BUG}12_a_candidate_stopped_while_suspended_leaves_no_znode[withdraw]",
        Edit(
            DECISION,
            "Input.FAILED: (Role.RELEASING, (Effect.RETRY_SOON,)),",
            "Input.FAILED: (Role.IDLE, (Effect.SETTLE,)),",
        ),
    ),
]

CLAIM = [
    mutant(
        "a claim whose answer was lost is not confirmed",
        f"{BUG}06_a_claim_whose_answer_was_lost_wins_one_term",
        Edit(ENLISTMENT, "confirm = self._newest.id == self.position.name", "confirm = False"),
    ),
    mutant(
        "a claim is confirmed by the record alone",
        f"{LATER_BUG}15_a_claim_lost_together_with_its_znode_is_not_led_on",
        Edit(
            ENLISTMENT,
            "            if self.position is None or not self._mine:",
            "            is_last = self._newest.candidate == self._candidate\n"
            "            if is_last and self._newest.ended is None:\n"
            "                self.position = Position(str(self._newest.id), None)\n"
            "                return Input.FIRST\n"
            "            if self.position is None or not self._mine:",
        ),
        Edit(
            ENLISTMENT,
            "            self._session.multi([Check(path), *claim], timeout_s=self._patience_s)\n",
            "            if claim:\n                self._session.multi([Check(path), *claim],"
            " timeout_s=self._patience_s)\n",
        ),
    ),
    mutant(
        "a claim without an answer is believed",
        f"{TABLE}a_claim_without_an_answer_is_looked_into_and_not_believed",
        Edit(
            DECISION,
            "the next survey reads who won.\n        Input.FAILED: (Role.WAITING,"
            " (Effect.RETRY_SOON,)),",
            "the next survey reads who won.\n        Input.FAILED: (Role.LEADING,"
            " (Effect.BEGIN_TERM,)),",
        ),
    ),
    mutant(
        "a claim is made whether or not the own znode stands",
        f"{ENDS}a_claim_without_a_znode_wins_nothing",
        Edit(
            ENLISTMENT,
            "self._session.multi([Check(path), *claim],",
            "self._session.multi(claim or [Check(path)],",
        ),
    ),
    mutant(
        "a claim is made on any version of the term record",
        f"{LATER_BUG}21_a_claim_on_what_a_lagging_server_has_read_is_made_again",
        Edit(
            ENLISTMENT,
            "SetData(self._layout.term, encode(record), self._newest_version)",
            "SetData(self._layout.term, encode(record))",
        ),
    ),
    mutant(
        "a claim is made on any version of the wishes",
        f"{ENDS}a_wish_written_between_survey_and_claim_is_known_to_the_new_leader",
        Edit(
            ENLISTMENT,
            "Check(self._layout.control, self._wishes_version)",
            "Check(self._layout.control)",
        ),
    ),
    mutant(
        "the version of the term record once read is kept",
        f"{LATER_BUG}21_a_claim_that_was_overtaken_is_made_again[by a record]",
        Edit(
            ENLISTMENT,
            "        data, self._newest_version = self._read(found[1], self._layout.term)",
            "        data, version = self._read(found[1], self._layout.term)\n"
            "        if self._newest_version < 0:\n"
            "            self._newest_version = version",
        ),
    ),
    mutant(
        "the version of the wishes once read is kept",
        f"{LATER_BUG}21_a_claim_that_was_overtaken_is_made_again[by a wish]",
        Edit(
            ENLISTMENT,
            "        data, self._wishes_version = self._read(found[2], self._layout.control)",
            "        data, version = self._read(found[2], self._layout.control)\n"
            "        if self._wishes_version < 0:\n"
            "            self._wishes_version = version",
        ),
    ),
    mutant(
        "whoever is beaten looks no more",
        f"{LATER_BUG}21_a_claim_that_was_overtaken_is_made_again[by a record]",
        Edit(DECISION, "        Input.BEATEN: _LOOK,", "        Input.BEATEN: (Role.WAITING, ()),"),
    ),
    mutant(
        "the session is not looked at after the claim",
        f"{BUG}09_a_session_replaced_between_look_and_claim_wins_nothing",
        Edit(
            ENLISTMENT,
            "if self._owner is None or self._session.id != self._owner:",
            "if self._owner is None:",
        ),
    ),
    mutant(
        "the lease begins with the answer to the claim",
        f"{BUG}09_a_lease_runs_from_when_the_claim_was_sent",
        Edit(
            ENLISTMENT,
            "WonClaim(record, path, self._owner, sent_s, self._unclean, self._wishes)",
            "WonClaim(record, path, self._owner, clock.now_s(), self._unclean, self._wishes)",
        ),
    ),
    mutant(
        "a new leader of a paused career begins its term at work",
        f"{ENDS}a_new_leader_begins_its_term_paused_if_an_operator_has_paused_the_career",
        Edit(
            CAMPAIGN, "self._operator_paused = won.wishes.paused", "self._operator_paused = False"
        ),
    ),
    mutant(
        "a term won while the candidate closes is released by nobody",
        f"{BUG}05_closed_while_it_makes_its_znode_again",
        Edit(CANDIDATE, "        if untaken is not None:", "        if False:"),
    ),
    mutant(
        "the numbers of terms begin again when the servers were emptied",
        f"{EMPTIED}who_led_before_the_servers_were_emptied_leads_again_under_a_higher_number",
        Edit(ENLISTMENT, "max(self._highest + 1, next_number(", "max(1, next_number("),
    ),
    mutant(
        "a record of nothing but brackets breaks the candidate down",
        f"{PURE_RECORDS}what_leaderq_did_not_write_is_refused_with_its_path",
        Edit(
            LAYOUT,
            "    except (ValueError, TypeError, RecursionError) as exc:",
            "    except (ValueError, TypeError) as exc:",
        ),
    ),
    mutant(
        "a candidate whose thread is interrupted stands in the line for ever",
        f"{CANDIDATES}a_candidate_whose_thread_is_interrupted_by_a_listener_leaves_the_line",
        Edit(
            CANDIDATE,
            "        except BaseException as exc:  #",
            "        except Exception as exc:  #",
        ),
    ),
]

HOLDING = [
    mutant(
        "a lease lasts 3 T",
        f"{BUG}08_a_leader_cut_off_has_ended_in_time",
        Edit(LEASE, "self.timeout_s * 2 / 3", "self.timeout_s * 3"),
    ),
    mutant(
        "a lease lasts T",
        f"{PURE_LEASE}the_lease_ends_before_any_session_of_that_time_out_can",
        Edit(LEASE, "self.timeout_s * 2 / 3", "self.timeout_s"),
    ),
    mutant(
        "the newest time-out granted counts, and not the smallest",
        f"{PURE_LEASE}the_smallest_time_out_granted_counts_from_then_on",
        Edit(
            LEASE,
            "timeout_s=min(self.timeout_s, timeout_s)",
            "timeout_s=timeout_s",
        ),
    ),
    mutant(
        "a shorter time-out granted at a reconnection is not heard of",
        f"{ENDS}a_time_out_cut_to_3_s_by_a_restart_shortens_the_lease_at_once_and_leaves_no_overlap",
        Edit(CANDIDATE, "            tenure.grant(self.session.timeout_s)", "            pass"),
    ),
    mutant(
        "a shorter time-out counts from the next renewal on",
        f"{ENDS}a_time_out_cut_to_3_s_by_a_restart_shortens_the_lease_at_once_and_leaves_no_overlap",
        Edit(TENURE, "            self.term.shorten(self.lease.ends_s)\n", ""),
    ),
    mutant(
        "a shorter time-out granted just before the term begins is not heard of",
        f"{ENDS}a_shorter_time_out_granted_before_the_term_begins_counts",
        Edit(CAMPAIGN, "        self.tenure.grant(self._session.timeout_s)\n", ""),
    ),
    mutant(
        "the lease is renewed by a read",
        f"{BUG}11_answered_reads_do_not_keep_a_leader",
        Edit(
            TENURE,
            "renewal = self._session.multi_async([Check(self.node)])",
            "renewal = self._session.exists_async(self.node)",
        ),
    ),
    mutant(
        "a renewal counts from its answer",
        f"{ENDS}a_lease_runs_from_when_a_renewal_was_sent",
        Edit(
            TENURE,
            "lambda reply: self._renewed(reply, at_s)",
            "lambda reply: self._renewed(reply, clock.now_s())",
        ),
    ),
    mutant(
        "a renewal that failed prolongs the lease",
        f"{ENDS}a_renewal_that_fails_prolongs_nothing",
        Edit(
            TENURE,
            "        elif error is None:\n            with",
            "        else:\n            with",
        ),
    ),
    mutant(
        "a term whose deadline has passed is prolonged",
        f"{PURE_TERM}a_deadline_that_has_passed_cannot_be_prolonged",
        Edit(
            TERM,
            "            if not self._over and clock.now_s() < self._deadline:\n"
            "                self",
            "            if not self._over:\n                self",
        ),
    ),
    mutant(
        "a shorter time-out lengthens a term",
        f"{PURE_TERM}a_deadline_is_only_ever_shortened_by_a_shorter_time_out",
        Edit(TERM, "self._deadline = min(self._deadline, deadline)", "self._deadline = deadline"),
    ),
    mutant(
        "a term does not look at the clock",
        f"{PURE_TERM}a_passed_deadline_deposes_without_anybody_saying_so",
        Edit(
            TERM,
            "        if not self._over and clock.now_s() < self._deadline:\n            return\n",
            "        if not self._over:\n            return\n",
        ),
    ),
    mutant(
        "a write does not ask whether its term is over",
        f"{PURE_TERM}a_closed_term_refuses_everything",
        Edit(
            TERM,
            "        self.check()\n        return self._fenced",
            "        return self._fenced",
        ),
    ),
    mutant(
        "whoever waits in a term sleeps through the end of its lease",
        f"{PURE_TERM}wait_ends_with_the_lease_even_if_nobody_wakes_it",
        Edit(TERM, "left = min(end, self._deadline) - clock.now_s()", "left = end - clock.now_s()"),
        may_hang=True,
    ),
    mutant(
        "a lost session only winds a term up",
        f"{PURE_TERM}being_deposed_during_a_planned_end_is_what_hand_over_is_told",
        Edit(TERM, "        if reason.deposes:\n", "        if reason is Reason.LEASE:\n"),
    ),
    mutant(
        "a leader does not watch its own znode",
        f"{BUG}03_a_deleted_znode_is_noticed_at_once",
        Edit(
            TENURE,
            "children_async(self.node, watch=self._on_own)",
            "children_async(self.node)",
        ),
    ),
    mutant(
        "a reconnection makes a leader enlist again",
        f"{BUG}02_reconnections_in_a_row_take_nothing_from_a_leader",
        Edit(
            DECISION,
            "Input.CONNECTED: (Role.SUSPECT, (Effect.RENEW,)),",
            "Input.CONNECTED: (Role.ENLISTING, (Effect.REQUEUE,)),",
        ),
    ),
    mutant(
        "a leader that is connected again resumes before a write was acknowledged",
        f"{TABLE}being_connected_again_does_not_resume_without_an_acknowledged_write",
        Edit(
            DECISION,
            "Input.CONNECTED: (Role.SUSPECT, (Effect.RENEW,)),",
            "Input.CONNECTED: (Role.LEADING, (Effect.RESUME,)),",
        ),
    ),
    mutant(
        "every loss of the connection ends the term",
        f"{LATER_BUG}18_short_losses_of_the_connection_keep_the_term",
        Edit(
            DECISION,
            "Input.SUSPENDED: (Role.SUSPECT, (Effect.PAUSE,)),",
            "Input.SUSPENDED: (Role.OUSTED, (Effect.DEPOSE_LEASE,)),",
        ),
    ),
    mutant(
        "the loss of a session is not heard of",
        f"{LATER_BUG}20_a_leader_is_demoted_although_its_ghosts_znode_stands",
        Edit(
            CANDIDATE,
            "        tenure = self._campaign.tenure\n        if tenure is not None and state in"
            " (SessionState.LOST,",
            "        if state is SessionState.LOST:\n"
            "            return\n"
            "        tenure = self._campaign.tenure\n"
            "        if tenure is not None and state in (SessionState.LOST,",
        ),
    ),
    mutant(
        "the loss of a session ends the term only when the candidate's thread comes to it",
        f"{BUG}10_a_term_ends_before_its_session_whatever_stands_still",
        Edit(CANDIDATE, "            tenure.term.wind_up(Reason.SESSION)\n", "            pass\n"),
    ),
    mutant(
        "a second session that is lost demotes a second time",
        f"{LATER_BUG}20_a_leader_that_loses_two_sessions_in_a_row_is_demoted_once_and_leads_again",
        Edit(
            DECISION,
            "    Role.OUSTED: {\n",
            "    Role.OUSTED: {\n        Input.LOST: (Role.OUSTED, (Effect.DEPOSE_SESSION,)),\n",
        ),
    ),
]

FENCE = [
    mutant(
        "a leader's writes are not fenced",
        f"{CANDIDATES}a_zombies_write_is_refused_by_the_server_when_its_znode_is_gone",
        Edit(TENURE, "fenced = [Check(self.node), *ops]", 'fenced = [Check("/"), *ops]'),
    ),
    mutant(
        "a leader's writes pass in a later session while its old znode stands",
        f"{ENDS}a_write_is_refused_in_a_later_session_although_the_old_znode_stands",
        Edit(
            TENURE,
            "if self._session.id not in (self._owner, None):",
            "if False:",
        ),
    ),
    mutant(
        "a write that waits for a connection outlasts its term",
        f"{BUG}11_a_write_never_lands_after_its_term",
        Edit(
            TENURE,
            "                clock.sleep(min(0.02, term.remaining_s()))\n               "
            " term.check()\n",
            "                clock.sleep(0.02)\n",
        ),
        may_hang=True,
    ),
    mutant(
        "the stage of a term is published without the fence",
        f"{ENDS}a_deposed_leaders_stage_is_not_published_over_its_successors_record",
        Edit(
            TENURE,
            "[Check(self.node), SetData(self._layout.term, encode(self.record))]",
            "[SetData(self._layout.term, encode(self.record))]",
        ),
    ),
    mutant(
        "the end of a term is recorded without the fence",
        f"{LATER_BUG}17_a_losers_release_leaves_its_successors_record_alone",
        Edit(
            ENLISTMENT,
            "                self._session.multi(ops, timeout_s=self._patience_s)\n",
            "                self._session.multi(ops[1:2], timeout_s=self._patience_s)\n"
            "                self._delete(name)\n",
        ),
    ),
    mutant(
        "a spoilt term record is taken for an empty one",
        f"{CANDIDATES}a_term_record_that_is_not_ours_is_never_overwritten",
        Edit(
            ENLISTMENT,
            "        self._newest = decode(TermRecord, data, path=self._layout.term)\n",
            '        spoilt = data[:1] not in (b"{", b"")\n        self._newest = TermRecord() if'
            " spoilt else decode(TermRecord, data, path='')\n",
        ),
    ),
    mutant(
        "spoilt wishes keep everybody from leading",
        f"{ENDS}spoilt_wishes_keep_nobody_from_leading_and_the_next_wish_writes_them_again",
        Edit(
            ENLISTMENT,
            "self._wishes = self._decoder.decoded(data) or Wishes()",
            "self._wishes = decode(Wishes, data, path=self._layout.control)",
        ),
    ),
    mutant(
        "wishes that are spoilt under a leader let a paused career work",
        f"{ENDS}wishes_that_are_spoilt_under_a_leader_leave_its_career_paused",
        Edit(
            TENURE,
            "        if wishes is not None:  # else those known before stand\n           "
            " self._hear_wishes(wishes)",
            "        self._hear_wishes(wishes or Wishes())",
        ),
    ),
]

ENDING = [
    mutant(
        "a term that is told to end is released before its code has returned",
        f"{CANDIDATES}nobody_is_let_in_before_the_code_of_an_ending_term_has_returned",
        Edit(
            DECISION,
            "_TOLD: Decision = (Role.ENDING, (Effect.WIND_UP,))",
            "_TOLD: Decision = (Role.RELEASING, (Effect.WIND_UP, Effect.RELEASE))",
        ),
    ),
    mutant(
        "the lease of an ending term is not kept up",
        f"{ENDS}an_ending_term_is_kept_until_its_code_has_returned",
        Edit(
            DECISION,
            "_HOLDING = frozenset({Role.LEADING, Role.SUSPECT, Role.ENDING})",
            "_HOLDING = frozenset({Role.LEADING, Role.SUSPECT})",
        ),
    ),
    mutant(
        "each request to end winds the term up again",
        f"{BUG}07_many_interrupts_end_a_term_once",
        Edit(
            DECISION,
            "        Input.CONNECTED: (Role.ENDING, (Effect.RENEW,)),\n",
            "        Input.CONNECTED: (Role.ENDING, (Effect.RENEW,)),\n        Input.TOLD:"
            " _TOLD,\n",
        ),
    ),
    mutant(
        "a released term passes check() until the release is answered",
        f"{BUG}10_a_term_is_over_before_it_is_released",
        Edit(
            CAMPAIGN,
            "            term.close()\n            self._enlistment.take_new_mark()\n",
            "            self._enlistment.take_new_mark()\n",
        ),
    ),
    mutant(
        "a term whose release was not answered is won again",
        f"{ENDS}a_term_whose_release_is_not_answered_is_never_won_again",
        Edit(
            CAMPAIGN,
            "            term.close()\n            self._enlistment.take_new_mark()\n",
            "            term.close()\n",
        ),
    ),
    mutant(
        "an end that was meant for one term ends the next",
        f"{ENDS}an_end_that_was_meant_for_one_term_does_not_end_the_next",
        Edit(
            CAMPAIGN,
            "if self.tenure is None or term not in (None, self.tenure.term):",
            "if self.tenure is None:",
        ),
    ),
    mutant(
        "whoever was deposed never stands again",
        f"{LATER_BUG}16_a_candidate_that_lost_its_term_stands_and_leads_again[lose_by_deletion]",
        Edit(
            DECISION,
            "    Role.OUSTED: {\n        Input.HANDED_OVER: _RELEASE,",
            "    Role.OUSTED: {\n        Input.HANDED_OVER: (Role.OUSTED, (Effect.RELEASE,"
            " Effect.SETTLE)),",
        ),
    ),
    *(
        mutant(
            f"a refused login while {what} ends the candidate's thread",
            f"{ENDS}a_refused_login_is_outlived[{what}]",
            Edit(
                ENLISTMENT,
                f'        except LeaderqError as exc:\n            return self._failed("{what}",'
                " exc)\n",
                "        except (ConnectionLost, SessionExpired) as exc:\n            return"
                f' self._failed("{what}", exc)\n',
            ),
        )
        for what in ("enlisting", "surveying", "claiming", "leaving", "releasing the term")
    ),
    mutant(
        "a release is given up when the candidate is closed",
        f"{BUG}12_a_candidate_stopped_while_suspended_leaves_no_znode[close]",
        Edit(
            CANDIDATE,
            "while not self._stopping or self.role is Role.RELEASING:",
            "while not self._stopping:",
        ),
    ),
    mutant(
        "a closed candidate joins the line again, and nobody minds it",
        f"{BUG}12_a_candidate_closed_while_suspended_stands_no_more",
        Edit(CANDIDATE, "        if self._closed:\n", "        if False:\n"),
    ),
    mutant(
        "the release of a place to a closed session is tried for ever",
        f"{BUG}07_a_closed_session_lets_a_waiting_candidate_withdraw",
        Edit(
            ENLISTMENT,
            "        except SessionClosed:\n"
            "            return Input.LOST  # its owner has closed it: nothing can be released,"
            " or need be\n",
            "",
        ),
    ),
    mutant(
        "the release of a term to a closed session is tried for ever",
        f"{BUG}07_a_closed_session_breaks_no_candidate",
        Edit(ENLISTMENT, "        except SessionClosed:\n            return Input.LOST\n", ""),
    ),
    mutant(
        "the lease of a closed session breaks its candidate down",
        f"{BUG}07_a_lease_that_ends_after_its_session_was_closed_breaks_no_candidate",
        Edit(
            CAMPAIGN,
            "        with suppress(SessionClosed):  # by its owner: LOST follows\n",
            "        if True:\n",
        ),
    ),
    mutant(
        "a candidate that broke down believes in its term",
        f"{ENDS}a_candidate_that_broke_down_says_so_and_leaves_the_line[True]",
        Edit(CANDIDATE, "self._campaign.end_term(Reason.FENCED)", "pass"),
    ),
    mutant(
        "a candidate that broke down leaves its znode in the line",
        f"{BUG}07_a_thread_that_died_does_not_block_the_line",
        Edit(
            CANDIDATE,
            "            self._leave_the_line(0.0 if tenure is None else tenure.term.deadline)\n",
            "",
        ),
    ),
    mutant(
        "a leader that broke down lets the next one in while its code may work",
        f"{ENDS}the_znode_of_a_broken_leader_stands_until_its_code_has_returned_or_nobody_can_trust_it",
        Edit(CANDIDATE, "quiet_s = lease_until_s + self.session.timeout_s / 3", "quiet_s = 0.0"),
    ),
    mutant(
        "the code of a former term counts as that of a leader that broke down",
        f"{ENDS}the_znode_of_a_broken_leader_stands_until_its_code_has_returned_or_nobody_can_trust_it[1]",
        Edit(CANDIDATE, "        self._code_returned.clear()  # that of a former term had\n", ""),
    ),
    mutant(
        "the end of a term is not told, and code that hangs after a break-down is not timed",
        f"{RUNNERS}the_code_of_a_candidate_that_broke_down_has_a_quarter_of_the_time_out_too",
        Edit(
            CAMPAIGN,
            "            self._publish(TermEnding(self._career, self._id, term.number, term.reason"
            " or reason))\n",
            "",
        ),
    ),
    mutant(
        "a candidate that cannot leave the line after a break-down blocks it",
        f"{ENDS}a_candidate_that_cannot_even_leave_the_line_gives_up_its_session",
        Edit(CANDIDATE, 'self.session.replace("a candidate failed")', "pass"),
    ),
]

MUTANTS = [*PLACE, *CLAIM, *HOLDING, *FENCE, *ENDING]
