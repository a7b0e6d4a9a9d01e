from typing import Any

connection: Any

def close_old_connections() -> None: ...
