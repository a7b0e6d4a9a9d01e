"""The election: candidates stand in line in ZooKeeper and one of them wins a term;
observers watch.
"""

from leaderq.election.candidate import Candidate
from leaderq.election.layout import EndDetails, TermRecord
from leaderq.election.observer import Member, Observer, Operator, View

__all__ = ["Candidate", "EndDetails", "Member", "Observer", "Operator", "TermRecord", "View"]
