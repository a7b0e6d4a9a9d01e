"""An exhaustive search over the election's decision table and the arithmetic of the lease.

``search`` is the search itself. ``assumptions`` and the sentences it holds say what the world may
do. ``election`` runs several candidates by ``leaderq.election.decision``; ``lease`` looks closer at
one leader, its server and the leader of the ensemble. ``controls`` breaks one thing at a time.
"""
