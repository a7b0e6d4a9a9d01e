"""The election: candidates stand in ZooKeeper, one wins a term; observers look on, operators ask."""

from leaderq.election.candidate import Candidate
from leaderq.election.observer import Observer, Operator, View

__all__ = ["Candidate", "Observer", "Operator", "View"]
