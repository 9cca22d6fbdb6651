"""A headless Chromium of our own, spoken to over two pipes. Owns its process and the DevTools protocol.

No port is opened for it. It gets a new empty profile, and nothing of our environment.
"""

import asyncio
import contextlib
import fcntl
import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import Any, Self

from memserver.errors import SetupError
from memserver.messages import JsonObject

_NAMES = (
    "chromium-headless-shell",
    "chrome-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
)
_FLAGS = (
    *("--headless", "--remote-debugging-pipe", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-default-apps", "--disable-extensions", "--disable-dev-shm-usage", "--mute-audio"),
    *("--hide-scrollbars", "--force-device-scale-factor=1", "--force-color-profile=srgb"),
    *("--font-render-hinting=none", "--disable-lcd-text", "--no-default-browser-check"),
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-server=http://127.0.0.1:9",  # nobody is there
    "--proxy-bypass-list=<-loopback>",
)
_NOBODY = 65534
_LAUNCH = """
import os, sys
reading, writing, user = map(int, sys.argv[1:4])
os.dup2(reading, 3)
os.dup2(writing, 4)
if user:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
os.execv(sys.argv[4], sys.argv[4:])
"""
"""The browser wants its pipes as files 3 and 4."""
_LONGEST = 64 * 2**20
Listener = Callable[[JsonObject], None]


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        pipes: tuple[asyncio.ReadTransport, asyncio.WriteTransport],
        folder: str,
    ) -> None:
        self._process, self._folder = process, folder
        self._reads, self._writer = pipes
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[JsonObject]] = {}
        self._listeners: dict[str, Listener] = {}
        self._reading = asyncio.create_task(self._read(reader))

    @classmethod
    async def start(cls, program: str | None = None, *, confined: bool = True) -> Self:
        """Start a browser. Raises SetupError: there is none, or it doesn't start."""
        path = program or find_chromium()
        if path is None:
            raise SetupError(
                "Web pages are rendered by Chromium, and there is none.",
                hint="Install it: apt-get install chromium-headless-shell.",
            )
        folder = tempfile.mkdtemp(prefix="memserver-browser-")
        user = _NOBODY if confined and os.getuid() == 0 else None
        if user is not None:
            os.chown(folder, user, user)
        flags = [*_FLAGS, f"--user-data-dir={folder}", *([] if confined else ["--no-sandbox"])]
        (to_it, ours), (its, from_it) = os.pipe(), os.pipe()
        moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in (to_it, from_it)]
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", _LAUNCH, *map(str, moved), str(user or 0)),
                *(path, *flags),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                pass_fds=moved,
                cwd=folder,
                env={"HOME": folder, "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"},
                start_new_session=True,
            )
        finally:
            for end in (to_it, from_it, *moved):
                os.close(end)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_LONGEST)
        answers = open(its, "rb")  # noqa: SIM115, ASYNC230
        reads, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), answers
        )
        writer, _ = await loop.connect_write_pipe(asyncio.Protocol, open(ours, "wb"))  # noqa: SIM115, ASYNC230
        browser = cls(process, reader, (reads, writer), folder)
        await browser._greet()
        return browser

    async def _greet(self) -> None:
        try:
            async with asyncio.timeout(60):
                await self.call("Browser.getVersion")
        except (TimeoutError, BrowserGone) as error:
            await self.aclose()
            raise SetupError(
                "Chromium doesn't start.",
                hint="Where user namespaces are forbidden it runs unconfined only: say so in the call.",
            ) from error

    async def call(self, method: str, session: str = "", **parameters: Any) -> JsonObject:  # noqa: ANN401
        """Ask the browser, or a page of it. Raises BrowserError: it refused; BrowserGone: it has ended."""
        if self._reading.done():
            raise BrowserGone
        number = next(self._numbers)
        message: JsonObject = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._writer.write(json.dumps(message).encode() + b"\0")
            result: JsonObject = await answer
        finally:
            self._waiting.pop(number, None)
        return result

    def listen(self, session: str, listener: Listener | None) -> None:
        """Call this with each event of a page; None ends that."""
        if listener is None:
            self._listeners.pop(session, None)
        else:
            self._listeners[session] = listener

    def send(self, method: str, session: str, **parameters: Any) -> None:  # noqa: ANN401
        message = {"id": next(self._numbers), "method": method, "params": parameters}
        self._writer.write(json.dumps({**message, "sessionId": session}).encode() + b"\0")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                content = await reader.readuntil(b"\0")
                self._take(json.loads(content[:-1]))
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(BrowserGone())

    def _take(self, message: JsonObject) -> None:
        if "id" not in message:
            if listener := self._listeners.get(message.get("sessionId", "")):
                listener(message)
            return
        answer = self._waiting.get(message["id"])
        if answer is None or answer.done():
            return
        if "error" in message:
            answer.set_exception(BrowserError(str(message["error"].get("message"))))
        else:
            answer.set_result(message["result"])

    async def aclose(self) -> None:
        """End it, with all its processes, and delete its profile."""
        self._writer.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        await self._process.wait()
        self._reading.cancel()
        self._reads.close()
        await asyncio.gather(self._reading, return_exceptions=True)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)


class BrowserError(Exception):
    """The browser refused what it was asked."""


class BrowserGone(Exception):
    """The browser has ended."""
