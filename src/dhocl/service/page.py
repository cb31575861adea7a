"""The pages at `/` and `/docs`: self-contained documents with a Content-Security-Policy each."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

WEB = files("dhocl.service") / "web"


def read_page(name: str, teaching: bool = True) -> tuple[str, str]:
    """A page and its Content-Security-Policy, which allows its scripts and styles by their hashes.

    Without `teaching`, it offers nothing that a replica refuses.
    """
    page = (WEB / name).read_text(encoding="utf-8")
    page = page if teaching else page.replace("<body>", '<body class="replica">')
    page = re.sub(r'<link rel="stylesheet" href="([\w.]+)">', lambda found: _within("style", found[1]), page)
    page = re.sub(r'<script src="([\w.]+)"></script>', lambda found: _within("script", found[1]), page)
    policy = [
        "default-src 'none'",
        f"script-src {_hashes('script', page)}",
        f"style-src {_hashes('style', page)}",
        "img-src 'self' blob: data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",  # text can not become markup
    ]
    return page, "; ".join(policy)


def _within(tag: str, name: str) -> str:
    return f"<{tag}>{(WEB / name).read_text(encoding='utf-8')}</{tag}>"


def _hashes(tag: str, page: str) -> str:
    blocks = re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}>", page, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(block.encode()).digest()).decode() for block in blocks]
    return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
