"""The consumer thread: takes over, reads ahead, commits, and tells how far it is."""
