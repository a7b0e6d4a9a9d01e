"""``leaderq journal``: journals of producers, looked at and repaired from outside; one file for each verb."""
