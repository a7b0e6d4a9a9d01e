"""The rooms of ``tests/containers/smoke.py``."""
