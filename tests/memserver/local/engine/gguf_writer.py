"""Writes small GGUF files for the tests, independently of the reader under test."""

import struct
from pathlib import Path
from typing import Any

U32, F32, STRING, ARRAY, I32 = 4, 6, 8, 9, 5


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value(item: Any) -> bytes:
    """A metadata value with its type in front."""
    if isinstance(item, str):
        return struct.pack("<I", STRING) + text(item)
    if isinstance(item, float):
        return struct.pack("<If", F32, item)
    if isinstance(item, int):
        return struct.pack("<II", U32, item)
    if item and isinstance(item[0], str):
        return struct.pack("<IIQ", ARRAY, STRING, len(item)) + b"".join(map(text, item))
    return struct.pack(f"<IIQ{len(item)}i", ARRAY, I32, len(item), *item)


def write_gguf(
    path: Path, metadata: dict[str, Any], tensors: dict[str, tuple[tuple[int, ...], int, bytes]]
) -> Path:
    """Write a file; a tensor is (shape as in numpy, GGUF type, data)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, item in metadata.items():
        head += text(key) + value(item)
    body = b""
    for name, (shape, kind, data) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += struct.pack("<IQ", kind, len(body))
        body += data + b"\0" * (-len(data) % 32)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + body)
    return path
