from typing import NamedTuple

class Id(NamedTuple):
    scheme: str
    id: str

class ACL(NamedTuple):
    perms: int
    id: Id

ANYONE_ID_UNSAFE: Id

class Permissions:
    READ: int
    CREATE: int

CREATOR_ALL_ACL: list[ACL]
OPEN_ACL_UNSAFE: list[ACL]
