"""The career thread's side: how one batch is handled, and what becomes of records that fail."""
