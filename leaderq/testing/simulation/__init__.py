"""The whole program in simulated time: many lives a second, and the same life for the same seed."""
