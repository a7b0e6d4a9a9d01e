"""A simulated Kafka: a cluster as a deterministic state machine, and clients of it."""
