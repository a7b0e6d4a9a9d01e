"""What an operator does with a queue: look (depth, kind, items, dead letters) and act (purge, requeue, drop, pause).

Works on the znodes of any recipe, Java's as well, through a :class:`~leaderq.zookeeper.Session`; needs neither a recipe object nor
a consumer. The znodes are authoritative, nothing is cached: each call looks anew. Begin with :class:`Keeper`.

What happens on each failure:

* **connection lost**: reads are asked again; writes too, for each of them deletes the znode that it is about and so cannot be applied
  twice. After ``patience_s`` without an answer :class:`~leaderq.errors.ConnectionLost` is raised;
* **killed midway**: what was done is done, whole; the same call goes on from there;
* **somebody else took an item or a letter meanwhile**: it is counted as gone, and is no error;
* **corrupt items**: are shown as such, moved unchanged, and never stop a look at the others.
"""

from __future__ import annotations

from leaderq.queues.keeping.browsing import Browsed
from leaderq.queues.keeping.draining import Draining
from leaderq.queues.keeping.keeper import Keeper
from leaderq.queues.keeping.letters import DeadLetters, Letter, Moved
from leaderq.queues.keeping.overview import Overview, overview, queues_below
from leaderq.queues.keeping.purging import Purged
from leaderq.queues.keeping.survey import Survey, survey

__all__ = [
    "Browsed",
    "DeadLetters",
    "Draining",
    "Keeper",
    "Letter",
    "Moved",
    "Overview",
    "Purged",
    "Survey",
    "overview",
    "queues_below",
    "survey",
]
