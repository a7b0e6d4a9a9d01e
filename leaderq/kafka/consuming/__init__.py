"""The drain thread: takes over, reads ahead, saves, looks over itself, and tells how far it is."""
