"""The consumer thread: takes over, reads ahead, commits, looks over itself, and tells how far it
is.
"""
