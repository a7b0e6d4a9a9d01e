"""Randomness: the one place where leaderq takes it from.

Ordinarily each name *is* the standard library's. A simulation replaces the attributes of this
module, so that all is drawn from its seed; so they are looked up late, by attribute:
``chance.random()``, never ``from leaderq.base.chance import random``, and never when a module is
imported or as the default of a parameter. ruff refuses the originals elsewhere in ``leaderq``.
"""

from __future__ import annotations

from os import urandom as token_bytes
from random import SystemRandom
from random import choice as choice
from random import random as random
from random import randrange as randrange
from random import sample as sample
from uuid import uuid4 as uuid4

token_bits = SystemRandom().getrandbits
"""An integer of so many bits that nobody can foresee."""

__all__ = [
    "choice",
    "random",
    "randrange",
    "sample",
    "token_bits",
    "token_bytes",
    "uuid4",
]
