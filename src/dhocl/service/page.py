"""The page at `/`, with a policy that lets run what is in it and nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files


def read_page() -> tuple[str, str]:
    """The page and its Content-Security-Policy: its own scripts and styles are allowed by their hashes."""
    page = files("dhocl.service").joinpath("page.html").read_text(encoding="utf-8")
    policy = [
        "default-src 'none'",
        f"script-src {_hashes('script', page)}",
        f"style-src {_hashes('style', page)}",
        "img-src 'self' blob: data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    return page, "; ".join(policy)


def _hashes(tag: str, page: str) -> str:
    blocks = re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}>", page, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(block.encode()).digest()).decode() for block in blocks]
    return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
