"""What stands in for the official images where they cannot be pulled; ``python
tests/containers/standins`` builds it.
"""
