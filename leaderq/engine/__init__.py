"""What queues of items and queues of messages have in common. It imports neither of them."""
