"""The whole program in simulated time."""
