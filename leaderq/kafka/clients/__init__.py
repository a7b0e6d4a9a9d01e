"""The client libraries behind narrow faces: a consumer that reads, producers that send."""
