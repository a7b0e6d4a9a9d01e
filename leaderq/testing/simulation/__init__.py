"""Simulated worlds: whole programs in simulated time, the same for every seed."""
