"""Logs of the command: one line per event, as text or JSON, on standard error."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Literal

Form = Literal["text", "json"]

ACCESS = "dhocl.access"  # logger of requests


class Line:
    """A log message with fields. Any formatter shows it as text; `JsonLines` keeps the fields.

    >>> print(Line("checkpoint written", entry=40, file="a b"))
    checkpoint written: entry=40 file="a b"
    """

    def __init__(self, what: str, **fields: Any) -> None:
        self.what = what
        self.fields = fields

    def __str__(self) -> str:
        parts = [f"{name}={_word(value)}" for name, value in self.fields.items()]
        return f"{self.what}: {' '.join(parts)}" if parts else self.what


class TextLines(logging.Formatter):
    """`TIME LEVEL MESSAGE`, and the traceback of a defect below."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname} {_one_line(record.getMessage())}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """An object per line: time, level, event, and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        content = {"time": _time(record), "level": record.levelname.lower()}
        if isinstance(record.msg, Line):
            content |= {"event": record.msg.what, **record.msg.fields}
        else:
            content["event"] = record.getMessage()
        if record.exc_info:
            content["traceback"] = self.formatException(record.exc_info)
        return json.dumps(content)


def configure(form: Form, access: bool) -> None:
    """Configure the logging of this process. Only the command calls this."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(handlers=[handler])
    logging.captureWarnings(True)
    logging.getLogger("dhocl").setLevel(logging.INFO)
    logging.getLogger(ACCESS).setLevel(logging.INFO if access else logging.WARNING)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _word(value: Any) -> str:
    """The value, in quotes if it would not be read as one word."""
    text = str(value)
    plain = text.isprintable() and text and not set(' "=') & set(text)
    return text if plain else json.dumps(text, ensure_ascii=not text.isprintable())


def _one_line(text: str) -> str:
    """Without control characters, which would forge lines."""
    return text if text.isprintable() else json.dumps(text)[1:-1]
