"""Text recognition by the program tesseract, where it is installed. Leaves to the caller which pages need it."""

import subprocess
import time
from dataclasses import dataclass, field

import pypdfium2

_DOTS = 300 / 72  # of a page's point: what tesseract is trained for
_LARGEST = 5000  # pixels of a side
_MOST_LANGUAGES = 4  # each one costs time
_SHARE = 0.75
"""Of the time that a file may take; the rest is for what is done with the text."""


@dataclass(slots=True)
class Recognizer:
    """Reads pages until the time is over."""

    program: str  # tesseract's path; empty if there is none
    seconds: float
    _languages: str = ""
    _began: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Seconds, of which there are none without a program."""
        left = self.seconds * _SHARE - (time.monotonic() - self._began)
        return left if self.program else 0

    def read(self, page: pypdfium2.PdfPage) -> str | None:
        """The text on a page; empty if none is recognized, None if the time is over or the program fails."""
        if self.left() <= 0:
            return None
        try:
            languages = self._languages or self._list()
            return self._run(["stdin", "stdout", "-l", languages], _as_image(page))
        except (subprocess.SubprocessError, OSError):
            return None

    def _list(self) -> str:
        names = self._run(["--list-langs"], b"").split("\n")[1:]
        found = [name for name in names if name and name != "osd"]
        self._languages = "+".join(found[:_MOST_LANGUAGES]) or "eng"
        return self._languages

    def _run(self, arguments: list[str], content: bytes) -> str:
        done = subprocess.run(
            [self.program, *arguments],
            input=content,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=self.left(),
            env={"OMP_THREAD_LIMIT": "1"},
            check=True,
        )
        return done.stdout.decode("utf-8", "replace").strip()


def _as_image(page: pypdfium2.PdfPage) -> bytes:
    scale = min(_DOTS, _LARGEST / max(1, *page.get_size()))
    bitmap = page.render(scale=scale, grayscale=True)
    raw, width, stride = bytes(bitmap.buffer), bitmap.width, bitmap.stride
    rows = (raw[at : at + width] for at in range(0, stride * bitmap.height, stride))
    return f"P5 {width} {bitmap.height} 255\n".encode() + b"".join(rows)
