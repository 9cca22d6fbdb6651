"""Small pictures of each kind, as files begin; and as clients send them."""

import struct
from base64 import b64encode
from typing import Any


def png(width: int = 2, height: int = 3, more: bytes = b"") -> bytes:
    return (
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
        + struct.pack(">II", width, height)
        + b"\x08\2\0\0\0"
        + more
    )


def gif(width: int = 2, height: int = 3) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0;"


def jpeg(width: int = 2, height: int = 3) -> bytes:
    comment = b"\xff\xfe\0\6abcd"
    return (
        b"\xff\xd8"
        + comment
        + b"\xff\xc0\0\x11\x08"
        + struct.pack(">HH", height, width)
        + bytes(12)
    )


def webp(width: int = 2, height: int = 3) -> bytes:
    size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + size


def data_url(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{b64encode(data).decode()}"


def message(text: str, *pictures: bytes) -> dict[str, Any]:
    """A user's message of a chat completion."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}]
    parts += [{"type": "image_url", "image_url": {"url": data_url(each)}} for each in pictures]
    return {"role": "user", "content": parts}
