"""A bucket of S3 in this process, as far as conditional puts go, behind the calls of boto3."""

from __future__ import annotations

import hashlib
import threading
from typing import Any


class ClientError(Exception):
    """An answer that is not 2xx."""

    def __init__(self, status: int) -> None:
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}
        super().__init__(f"the answer is {status}")


class Bucket:
    """Its ETags are digests of the bytes, as those of S3 are. Thread-safe."""

    exceptions = type("exceptions", (), {"ClientError": ClientError})

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self._lock = threading.Lock()

    def head_object(self, **where: str) -> dict[str, Any]:
        if where["Key"] not in self.objects:
            raise ClientError(404)
        body, metadata = self.objects[where["Key"]]
        return {"ETag": f'"{hashlib.md5(body).hexdigest()}"', "Metadata": metadata}

    def put_object(self, **given: Any) -> None:
        key = given["Key"]
        with self._lock:
            self._check(key, given)
            metadata = {name.lower(): value for name, value in given["Metadata"].items()}
            self.objects[key] = given["Body"], metadata

    def _check(self, key: str, given: dict[str, Any]) -> None:
        if "IfNoneMatch" in given and key in self.objects:
            raise ClientError(412)
        if "IfMatch" in given and self.head_object(Key=key)["ETag"] != given["IfMatch"]:
            raise ClientError(412)
