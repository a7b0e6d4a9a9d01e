"""``leaderq dead``."""
