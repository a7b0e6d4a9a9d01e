"""What the queues of items and the queues of messages have in common. Knows of neither."""
