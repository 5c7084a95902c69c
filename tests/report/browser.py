"""Pages in a browser without a network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

needs_chromium = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"needs {CHROMIUM}")


@dataclass
class Visit:
    """A page that is open, what it asked for and what went wrong in it."""

    tab: Any
    expect: Any
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@contextmanager
def opened(path: Path) -> Iterator[Visit]:
    """A file in headless Chromium, offline, 1280 pixels wide."""
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS)
        context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
        visit = Visit(context.new_page(), sync_api.expect)
        visit.tab.on("request", lambda request: visit.requests.append(request.url))
        visit.tab.on("requestfailed", lambda request: visit.errors.append(f"failed: {request.url}"))
        visit.tab.on("console", lambda message: visit.errors.append(message.text) if message.type == "error" else None)
        visit.tab.on("pageerror", lambda error: visit.errors.append(str(error)))
        visit.tab.goto(path.as_uri())
        yield visit
        browser.close()


def loads_nothing(page: str) -> bool:
    """Whether a page, less plotly.js, names nothing to be loaded by src, href, url() or import."""
    # plotly's map layers know addresses that no chart here uses
    rest = re.sub(r"<script>/\*\*\s*\* plotly\.js.*?</script>", "", page, count=1, flags=re.DOTALL)
    assert len(rest) < len(page) / 2
    words = ("http:", "https:", "url(", "@import")
    return not re.search(r"""(?:src|href)\s*=\s*["']?(?!["']?#)[^\s>]+""", rest) and not any(w in rest for w in words)
