"""The lowest layer: modules that every package may import, and that import no other package. See
also ``leaderq.threads``.
"""
