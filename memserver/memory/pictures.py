"""Reading pictures that come from outside: what they are is found by their bytes, never by what is said of them.

Only the header is read, for the size; nothing is decoded.
"""

import binascii
import hashlib
import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memserver.errors import PictureRefused
from memserver.messages import Picture
from memserver.text import clean

MOST = 16
"""In one message."""
LONGEST_NAME = 200
_DATA_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_KINDS = "PNG, JPEG, GIF and WebP"
Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PictureLimits:
    """What one picture may be at most; with 0 bytes none is taken."""

    max_bytes: int = 8_000_000
    max_pixels: int = 40_000_000


def marker(name: str = "") -> str:
    """What stands in a text for a picture, for those who read it as text."""
    return f"[picture: {name}]" if name else "[picture]"


def from_url(url: str, limits: PictureLimits, name: str = "") -> Picture:
    """The picture of a data: URL. Raises PictureRefused."""
    found = _DATA_URL.match(url)
    if found is None:
        kind = url.split(":", 1)[0][:20]
        raise PictureRefused(
            f"A picture is taken as a data: URL with base64, not by {kind}: the server fetches nothing for a client.",
            hint="Send the picture itself: data:image/png;base64,…",
        )
    if len(url) - found.end() > limits.max_bytes * 4 // 3 + 4:
        raise _too_large(limits)
    try:
        data = b64decode(url[found.end() :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise PictureRefused("The picture's data: URL is no valid base64.") from error
    return from_bytes(data, limits, name)


def from_bytes(data: bytes, limits: PictureLimits, name: str = "") -> Picture:
    """A picture with what its header says. Raises PictureRefused."""
    if len(data) > limits.max_bytes:
        raise _too_large(limits)
    media_type, size = _look(data)
    width, height = size
    if width * height > limits.max_pixels:
        raise PictureRefused(
            f"The picture has {width} x {height} pixels; {limits.max_pixels:,} in all are the most.",
            hint="Send a smaller one.",
        )
    digest = hashlib.sha256(data).hexdigest()
    return Picture(digest, media_type, width, height, clean(name).strip()[:LONGEST_NAME], data)


def check_count(pictures: Sequence[object]) -> None:
    """Raises PictureRefused."""
    if len(pictures) > MOST:
        raise PictureRefused(f"{len(pictures)} pictures; a message may have {MOST}.")


def _too_large(limits: PictureLimits) -> PictureRefused:
    if limits.max_bytes == 0:
        return PictureRefused("This server takes no pictures.")
    return PictureRefused(
        f"The picture is larger than {limits.max_bytes:,} bytes.", hint="Send a smaller one."
    )


def _look(data: bytes) -> tuple[str, Size]:
    """The media type and the size in pixels."""
    for begins, media_type, size_of in _FORMATS:
        if begins.match(data):
            size = size_of(data)
            if size is None or 0 in size:
                raise PictureRefused(f"The {media_type} is damaged: its header has no size.")
            return media_type, size
    is_svg = b"<svg" in data[:1000].lower()
    what = "SVG is a program and no picture" if is_svg else "It is no picture of a known kind"
    raise PictureRefused(f"{what}: {_KINDS} are taken.", hint="Convert it.")


def _png(data: bytes) -> Size | None:
    return _big(data, 16, 4), _big(data, 20, 4)


def _gif(data: bytes) -> Size | None:
    return _little(data, 6, 2), _little(data, 8, 2)


def _jpeg(data: bytes) -> Size | None:
    """Of the frame: markers follow each other, each with its length (ITU T.81, B.1.1)."""
    place = 2
    while place + 9 <= len(data) and data[place] == 0xFF:
        kind = data[place + 1]
        if kind == 0xFF:
            place += 1
        elif 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            return _big(data, place + 7, 2), _big(data, place + 5, 2)
        else:
            place += 2 + _big(data, place + 2, 2)
    return None


def _webp(data: bytes) -> Size | None:
    """Of the first chunk (RFC 9649): extended, lossless or lossy."""
    match data[12:16]:
        case b"VP8X":
            return _little(data, 24, 3) + 1, _little(data, 27, 3) + 1
        case b"VP8L":
            bits = _little(data, 21, 4)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            return _little(data, 26, 2) & 0x3FFF, _little(data, 28, 2) & 0x3FFF
        case _:
            return None


def _big(data: bytes, place: int, size: int) -> int:
    return int.from_bytes(data[place : place + size])


def _little(data: bytes, place: int, size: int) -> int:
    return int.from_bytes(data[place : place + size], "little")


_FORMATS: Sequence[tuple[re.Pattern[bytes], str, Callable[[bytes], Size | None]]] = (
    (re.compile(rb"\x89PNG\r\n\x1a\n.{4}IHDR.{8}", re.DOTALL), "image/png", _png),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg", _jpeg),
    (re.compile(rb"GIF8[79]a.{4}", re.DOTALL), "image/gif", _gif),
    (re.compile(rb"RIFF.{4}WEBP.{18}", re.DOTALL), "image/webp", _webp),
)
