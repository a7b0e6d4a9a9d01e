"""The client libraries behind two narrow faces: a consumer that reads, a producer that sends in
transactions.
"""
