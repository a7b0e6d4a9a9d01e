"""The client libraries behind two narrow faces: a drain that reads, a producer that sends in
transactions.
"""
