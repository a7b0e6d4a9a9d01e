"""READMEs as scripts: the commands are taken from the text, so that the text cannot rot."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from leaderq.testing import eventually
from leaderq.testing.waiting import patience

EXAMPLES = Path(__file__).parents[3] / "examples"


def commands(readme: Path) -> list[str]:
    return [
        line.strip()[2:] for line in readme.read_text().splitlines() if line.startswith("    $ ")
    ]


class Terminal:
    def __init__(
        self, command: str, *, cwd: Path, environment: dict[str, str], output: Path
    ) -> None:
        self._output = output
        with output.open("wb") as stream:
            # exec: the shell must not stand between the reader's Ctrl-C and the command.
            self._process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=cwd, env=environment,
                stdout=stream, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    @property
    def printed(self) -> str:
        return self._output.read_text(errors="replace")

    def wait_for(self, text: str, timeout_s: float = 60.0) -> re.Match[str]:
        try:
            search = partial(re.search, text, flags=re.MULTILINE)
            return eventually(lambda: search(self.printed), timeout_s=timeout_s)
        except AssertionError as exc:
            raise AssertionError(f"{text!r} was not printed; what was:\n{self.printed}") from exc

    def ended(self) -> int:
        return self._process.wait(60 * patience())

    def interrupt(self) -> int:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        return self.ended()

    def clear_away(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.interrupt()
        self._process.kill()
        self._process.wait()


class Reader:
    """Somebody who follows a README, in folder ``cwd``, with these variables too; the terminals are
    closed by ``stack``.
    """

    def __init__(
        self, cwd: Path, scratch: Path, environment: dict[str, str], stack: ExitStack
    ) -> None:
        self.cwd, self._scratch, self._stack = cwd, scratch, stack
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        own = {"PATH": path, "PYTHONUNBUFFERED": "1"}
        self.environment = {**os.environ, **own, **environment}

    def opens(self, command: str, until: str = "") -> Terminal:
        """A terminal in which ``command`` goes on, once it has printed what is waited for."""
        output = Path(mkdtemp(dir=self._scratch)) / "printed"
        terminal = Terminal(command, cwd=self.cwd, environment=self.environment, output=output)
        self._stack.callback(terminal.clear_away)
        terminal.wait_for(until)
        return terminal

    def types(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.cwd, env=self.environment,
            capture_output=True, text=True, check=False, timeout=90 * patience(),
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def starts_servers(self, command: str) -> None:
        """``leaderq servers up``, and its export line pasted."""
        terminal = self.opens(command)
        line = terminal.wait_for(r"^export (\S+)=(\S+) (\S+)=(\S+)$", timeout_s=120)
        self.environment |= {line[1]: line[2], line[3]: line[4]}
