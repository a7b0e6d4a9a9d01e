"""``leaderq journal``."""
