from typing import Any

ConsumerRecord: Any
