from typing import NamedTuple

class Id(NamedTuple):
    scheme: str
    id: str

class ACL(NamedTuple):
    perms: int
    id: Id

CREATOR_ALL_ACL: list[ACL]
OPEN_ACL_UNSAFE: list[ACL]
