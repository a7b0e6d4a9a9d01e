"""``leaderq dead``: the letters about records that could not be handled; one file for each verb."""
