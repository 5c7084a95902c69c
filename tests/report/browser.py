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

#: Milliseconds after which a browser that does nothing has failed; long, as other tests run beside it.
_PATIENCE = 120_000

needs_chromium = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"needs {CHROMIUM}")

#: A4 landscape less its margins of 12 mm, in CSS pixels.
PAPER = (1032, 703)

#: Widths of windows, with what their readers have set.
WINDOWS = [(360, "light"), (1280, "dark")]


@dataclass
class Visit:
    """A page that is open, what it asked for and what went wrong in it."""

    tab: Any
    expect: Any
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@contextmanager
def launched() -> Iterator[Any]:
    """Headless Chromium."""
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS, timeout=_PATIENCE)
        yield browser
        browser.close()


def visited(browser: Any, path: Path, *, width: int = 1280, scheme: str = "light", scripts: bool = True) -> Visit:
    """A file in a new tab, offline.

    Args:
        browser: of `launched`.
        path: of the file.
        width: of the window in pixels.
        scheme: what the reader has set, ``light`` or ``dark``.
        scripts: whether the page may run scripts.
    """
    sync_api = pytest.importorskip("playwright.sync_api")
    context = browser.new_context(
        offline=True, viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=scripts
    )
    context.set_default_timeout(_PATIENCE)
    sync_api.expect.set_options(timeout=_PATIENCE)
    tab = context.new_page()
    visit = Visit(tab, sync_api.expect)
    visit.tab.on("request", lambda request: visit.requests.append(request.url))
    visit.tab.on("requestfailed", lambda request: visit.errors.append(f"failed: {request.url}"))
    visit.tab.on("console", lambda message: visit.errors.append(message.text))
    visit.tab.on("pageerror", lambda error: visit.errors.append(str(error)))
    visit.tab.goto(path.as_uri())
    return visit


def opens_clean(visit: Visit, page: Path, width: int) -> bool:
    """No message, no request but for the page, no sideways scrolling, nothing that axe calls serious."""
    assert visit.tab.evaluate("document.documentElement.scrollWidth") == width
    assert serious(visit.tab) == []
    assert visit.errors == []
    assert visit.requests == [page.as_uri()]
    return True


def scrolled(tab: Any) -> None:
    """Wait until the page has heard of having been scrolled, which hides what is shown: by its frame after the next."""
    tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))")


@contextmanager
def opened(path: Path) -> Iterator[Visit]:
    """A file in headless Chromium, offline, 1280 pixels wide."""
    with launched() as browser:
        yield visited(browser, path)


def serious(tab: Any) -> list[str]:
    """What axe calls serious or critical on a page."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    return [
        f"{violation['id']}: {node['html'][:200]}"
        for violation in axe.Axe().run(tab).response["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


def loads_nothing(page: str) -> bool:
    """Whether a page names nothing to be loaded by src, href, url() or import; files within the page do not count."""
    addresses = re.findall(r"""(?:src|href)\s*=\s*["']?([^\s>"']*)|url\(([^)]*)\)""", page)
    inside = all((link or fill).startswith(("#", "data:")) for link, fill in addresses)
    return inside and not any(word in page for word in ("http:", "https:", "@import"))
