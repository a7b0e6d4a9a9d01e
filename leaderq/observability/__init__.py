"""Listeners of events, which show them to people and to machines; nothing depends on them."""
