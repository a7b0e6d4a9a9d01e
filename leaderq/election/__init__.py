"""The election: candidates stand in ZooKeeper, one wins a term; observers look on, operators ask."""

from leaderq.election.candidate import Candidate
from leaderq.election.observer import Observer, View
from leaderq.election.operator import Operator

__all__ = ["Candidate", "Observer", "Operator", "View"]
