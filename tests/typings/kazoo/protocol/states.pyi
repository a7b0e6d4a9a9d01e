class KazooState:
    CONNECTED: str
    LOST: str

class KeeperState:
    AUTH_FAILED: str
    CONNECTED: str
    CONNECTED_RO: str
    CONNECTING: str
    CLOSED: str
    EXPIRED_SESSION: str

class ZnodeStat(tuple[int, ...]): ...
