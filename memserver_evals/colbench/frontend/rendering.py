"""Pictures of web pages that a model or a data set wrote.

A page reaches nothing: every request that it makes is answered here. Tailwind's style sheet is a local
copy, a picture from anywhere is a grey box of the size that its address names, and all else is empty.
Scripts don't run. Each page has a browser context of its own, and references have another browser than answers.
"""

import asyncio
import base64
import lzma
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

from memserver.errors import InvalidInput
from memserver.messages import JsonObject
from memserver_evals.colbench.frontend.browser import Browser, BrowserError, BrowserGone
from memserver_evals.colbench.kinds import Kind

_ADDRESS = "http://page.invalid/"
_TAILWIND = "https://cdn.jsdelivr.net/npm/tailwindcss@2.2.19/dist/tailwind.min.css"
_TAILWIND_SCRIPT = re.compile(
    r"<script\b[^>]*\bsrc\s*=\s*[\"'][^\"']*tailwind[^\"']*[\"'][^>]*>\s*(?:</script\s*>)?",
    re.IGNORECASE,
)
_SIZE = re.compile(r"(\d{1,4})(?:[/x](\d{1,4}))?/?$")
_MAX_SIDE = 4000


class RenderingFailed(InvalidInput):
    """A page gave no picture in time."""


@dataclass(frozen=True, slots=True)
class Viewport:
    """The window that a page is shown in, in pixels; a longer page's picture is longer, up to a limit."""

    width: int = 1280
    height: int = 720
    longest: int = 4096


class Renderer:
    """Renders pages, several at a time. Use it as an async context manager."""

    def __init__(
        self,
        viewport: Viewport | None = None,
        *,
        at_once: int = 2,
        seconds: float = 30,
        program: str | None = None,
        confined: bool = True,
    ) -> None:
        """Make it; a browser starts with the first page of its kind.

        `program`: path of Chromium; None looks for it.
        """
        self._viewport = viewport or Viewport()
        self._places = asyncio.Semaphore(at_once)
        self._seconds = seconds
        self._program, self._confined = program, confined
        self._browsers: dict[Kind, Browser] = {}
        self._starting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        while self._browsers:
            await self._browsers.popitem()[1].aclose()

    async def render(self, page: str, *, kind: Kind = "answer") -> bytes:
        """The picture of a page, as PNG.

        Raises RenderingFailed: it took too long, or the browser broke on it; SetupError: there is no browser.
        """
        async with self._places:
            browser = await self._running(kind)
            try:
                async with asyncio.timeout(self._seconds):
                    return await _Page(browser, self._viewport, page).picture()
            except (TimeoutError, BrowserGone) as error:
                await self._end(kind, browser)
                raise RenderingFailed("The page can't be rendered in time.") from error
            except BrowserError as error:
                raise RenderingFailed(f"The page can't be rendered: {error}") from error

    async def _running(self, kind: Kind) -> Browser:
        async with self._starting:
            if kind not in self._browsers:
                started = await Browser.start(self._program, confined=self._confined)
                self._browsers[kind] = started
            return self._browsers[kind]

    async def _end(self, kind: Kind, broken: Browser) -> None:
        async with self._starting:
            if self._browsers.get(kind) is broken:
                del self._browsers[kind]
                await broken.aclose()


class _Page:
    def __init__(self, browser: Browser, viewport: Viewport, page: str) -> None:
        self._browser, self._viewport = browser, viewport
        self._content = _TAILWIND_SCRIPT.sub(f'<link rel="stylesheet" href="{_TAILWIND}">', page)
        self._session = self._frame = ""
        self._loaded = asyncio.Event()

    async def picture(self) -> bytes:
        context = (await self._browser.call("Target.createBrowserContext"))["browserContextId"]
        try:
            return await self._in(context)
        finally:
            self._browser.listen(self._session, None)
            await self._browser.call("Target.disposeBrowserContext", browserContextId=context)

    async def _in(self, context: str) -> bytes:
        view, call = self._viewport, self._browser.call
        target = await call("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        session = self._session = attached["sessionId"]
        self._frame = target["targetId"]
        self._browser.listen(session, self._event)
        await call("Fetch.enable", session, patterns=[{"urlPattern": "*"}])
        await call("Emulation.setScriptExecutionDisabled", session, value=True)
        await call(
            "Emulation.setDeviceMetricsOverride",
            session,
            width=view.width,
            height=view.height,
            deviceScaleFactor=1,
            mobile=False,
        )
        await call("Page.enable", session)
        await call("Page.navigate", session, url=_ADDRESS)
        await self._loaded.wait()
        size = (await call("Page.getLayoutMetrics", session))["cssContentSize"]
        clip = {
            "x": 0,
            "y": 0,
            "width": view.width,
            "height": max(1, min(size["height"], view.longest)),
            "scale": 1,
        }
        shot = await call(
            "Page.captureScreenshot", session, format="png", clip=clip, captureBeyondViewport=True
        )
        return base64.b64decode(shot["data"])

    def _event(self, message: JsonObject) -> None:
        parameters = message.get("params", {})
        if message["method"] == "Page.loadEventFired":
            self._loaded.set()
        elif message["method"] == "Fetch.requestPaused":
            if self._leads_away(parameters):
                self._browser.send(
                    "Fetch.failRequest",
                    self._session,
                    requestId=parameters["requestId"],
                    errorReason="Aborted",
                )
                return
            kind, content = self._answer(
                parameters["request"]["url"], parameters.get("resourceType", "")
            )
            self._browser.send(
                "Fetch.fulfillRequest",
                self._session,
                requestId=parameters["requestId"],
                responseCode=200,
                responseHeaders=[{"name": "Content-Type", "value": kind}],
                body=base64.b64encode(content).decode(),
            )

    def _leads_away(self, request: JsonObject) -> bool:
        """Whether the page would be left for another one, by a refresh."""
        is_page = request["frameId"] == self._frame and request.get("resourceType") == "Document"
        return is_page and request["request"]["url"] != _ADDRESS

    def _answer(self, url: str, kind: str) -> tuple[str, bytes]:
        if url == _ADDRESS and kind == "Document":
            return "text/html; charset=utf-8", self._content.encode("utf-8", "replace")
        if kind == "Stylesheet":
            return "text/css; charset=utf-8", tailwind() if "tailwind" in url else b""
        if kind == "Image":
            return "image/svg+xml", placeholder(url)
        return "text/html; charset=utf-8", b""


@cache
def tailwind() -> bytes:
    """Tailwind 2.2.19's style sheet, as the published pages use it."""
    packed = files("memserver_evals.colbench.frontend") / "assets" / "tailwind-2.2.19.min.css.xz"
    return lzma.decompress(packed.read_bytes())


def placeholder(url: str) -> bytes:
    """A grey box with a cross, of the size that a picture's address ends with (`/300/200`, `/300x200`)."""
    found = _SIZE.search(unquote(urlsplit(url).path))
    width, height = (400, 300)
    if found:
        width = min(int(found[1]), _MAX_SIDE) or 1
        height = min(int(found[2] or found[1]), _MAX_SIDE) or 1
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">'
        f'<rect width="100%" height="100%" fill="#c9ced6"/><path d="M0 0L{width} {height}M{width} 0L0 {height}"'
        ' stroke="#aab1bc" stroke-width="2"/></svg>'
    ).encode()
