"""The service as a separate process, for measurements."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

START = "from dhocl.cli import main; main()"


class Server:
    """`dhocl serve` in a separate process."""

    def __init__(self, folder: Path, *options: object) -> None:
        command = [sys.executable, "-c", START, "serve", "--model", folder, "--port", 0, *options]
        self._process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().removeprefix("dhocl: ").strip()

    def end(self, how: signal.Signals) -> int:
        self._process.send_signal(how)
        return self._process.wait()

    def megabytes(self, field: str = "VmRSS") -> int:
        """Memory of the service now, or at its peak (VmHWM). The processes that decode are included."""
        children = Path(f"/proc/{self._process.pid}/task").glob("*/children")
        processes = [str(self._process.pid), *(child for file in children for child in file.read_text().split())]
        texts = [Path(f"/proc/{process}/status").read_text() for process in processes]
        return sum(int(text.split(f"{field}:")[1].split()[0]) for text in texts) // 1024
