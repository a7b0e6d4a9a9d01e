"""A check in a forked child."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable


def in_child(check: Callable[[], object]) -> None:
    """Run ``check`` in a forked child, for 60 seconds at most; fails if it does."""
    with warnings.catch_warnings():
        # that threads run is what this is about
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(60)
            check()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
