"""The service as a separate process, for measurements."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

START = "from dhocl.cli import main; main()"


class Server:
    """`dhocl serve` in a separate process, of the model in a folder, or a replica (None).

    `constants`: other values for constants of the package, such as {"nn.ledger.REMEMBERED": 10}.
    """

    def __init__(self, folder: Path | None, *options: object, constants: Mapping[str, float] | None = None) -> None:
        model = [] if folder is None else ["--model", folder]
        changes = "".join(
            f"import dhocl.{name.rpartition('.')[0]}; dhocl.{name} = {value}; "
            for name, value in (constants or {}).items()
        )
        command = [sys.executable, "-c", changes + START, "serve", *model, "--port", 0, *options]
        self._process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().removeprefix("dhocl: ").strip()

    def below(self, name: str) -> list[int]:
        """Processes that it, or a process below it, has started, and whose command begins with `name`."""
        children: dict[int, list[int]] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended
                parent = int(path.read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(path.parent.name))
        below, found = [self._process.pid], []
        while below:
            process = below.pop()
            below += children.get(process, [])
            with suppress(OSError):
                if Path(f"/proc/{process}/cmdline").read_text().startswith(name):
                    found.append(process)
        return found

    def end(self, how: signal.Signals) -> int:
        self._process.send_signal(how)
        return self._process.wait()

    def megabytes(self, field: str = "VmRSS") -> int:
        """Memory of the service now, or at its peak (VmHWM). The processes that decode are included."""
        children = Path(f"/proc/{self._process.pid}/task").glob("*/children")
        processes = [str(self._process.pid), *(child for file in children for child in file.read_text().split())]
        texts = [Path(f"/proc/{process}/status").read_text() for process in processes]
        return sum(int(text.split(f"{field}:")[1].split()[0]) for text in texts) // 1024
