"""Simulated lives: whole programs in simulated time, the same for the same seed."""
