from typing import Any, ClassVar

class SequentialThreadingHandler:
    name: ClassVar[str]
    timeout_exception: ClassVar[type[Exception]]
    callback_queue: Any
    completion_queue: Any
    def __init__(self) -> None: ...
