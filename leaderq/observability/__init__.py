"""Listens to events and shows them to people and to machines; the work does not depend on it."""
