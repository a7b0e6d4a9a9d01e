"""The election: candidates stand in ZooKeeper, one wins a term; others look on, or ask."""

from leaderq.election.candidate import Candidate
from leaderq.election.layout import EndDetails, TermRecord
from leaderq.election.observer import Member, Observer, Operator, View

__all__ = ["Candidate", "EndDetails", "Member", "Observer", "Operator", "TermRecord", "View"]
