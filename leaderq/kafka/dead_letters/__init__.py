"""Dead letters: what they look like, how they are read, and how they are sent back."""
