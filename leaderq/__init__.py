"""leaderq: leader-elected consumers that stay alone and available."""
