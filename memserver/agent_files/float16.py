"""Vectors as bytes: 16-bit floats, little-endian, as the database keeps them."""

import struct
from base64 import b64decode
from collections.abc import Sequence

from memserver.errors import AgentFileCorrupt


def pack_float16(vector: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(vector)}e", *vector)


def unpack_float16(data: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(data) // 2}e", data))


def decode_vector(text: str, dimension: int) -> bytes:
    """The bytes of a vector in base64. Raises AgentFileCorrupt: it has not this dimension."""
    try:
        data = b64decode(text, validate=True)
    except ValueError as error:
        raise AgentFileCorrupt(f"A vector is no base64: {error}.") from error
    if len(data) != 2 * dimension:
        raise AgentFileCorrupt(f"A vector has not the {dimension} dimensions of the manifest.")
    return data
