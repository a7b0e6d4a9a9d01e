"""Work orders: rules come in as messages, one elected allocator makes orders of them."""

from .allocator import Allocator

__all__ = ["Allocator"]
