"""Listeners of events: what makes them visible to people and to machines. Nothing depends on them."""
