"""Reading a GGUF file: its metadata and its tensors, dequantised to float32.

Owns the file format and nothing of any model; `convert.py` knows what the names mean. Needs numpy,
and runs in the engine's environment, since the server's own may not have it.

The format, little-endian (ggml's docs/gguf.md, version 2 and 3):

    "GGUF"  version u32  tensor count u64  metadata count u64
    metadata: key string, value type u32, value            string: length u64, UTF-8 bytes
    tensors:  name string, dimensions u32, sizes u64 (fastest first), type u32, offset u64
    padding to `general.alignment`, then the tensors' data, offsets counted from here

Quantised tensors are rows of blocks of 32 weights (ggml-quants.c): a scale `d` (f16), for Q4_1 a
minimum `m` (f16), then the quants; 4-bit quants hold weight i in the low half of byte i and weight
i + 16 in the high half.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memserver.errors import SetupError

Array = NDArray[Any]

_SCALARS = {**dict(enumerate("BbHhIif?")), 10: "Q", 11: "q", 12: "d"}
"""How `struct` writes the types of values, by their numbers."""
_STRING, _ARRAY = 8, 9

_F32, _F16, _Q4_0, _Q4_1, _Q8_0, _BF16 = 0, 1, 2, 3, 8, 30
_PLAIN_BYTES = {_F32: 4, _F16: 2, _BF16: 2}
_BLOCK = 32
_BLOCK_BYTES = {_Q4_0: 2 + 16, _Q4_1: 4 + 16, _Q8_0: 2 + 32}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies in the file; `shape` has the slowest dimension first, as in numpy."""

    shape: tuple[int, ...]
    kind: int
    offset: int


class GGUFFile:
    """One GGUF file, mapped into memory: its metadata, and its tensors in the file's order."""

    def __init__(self, path: Path) -> None:
        """Read the header. Raises SetupError: this is no GGUF file that can be read."""
        self._bytes = np.memmap(path, dtype=np.uint8, mode="r")
        cursor = _Cursor(self._bytes.data)
        try:
            self._read_header(cursor)
        except (struct.error, UnicodeDecodeError, KeyError) as error:
            raise SetupError(f"{path} is damaged: {error!r}") from error

    def _read_header(self, cursor: "_Cursor") -> None:
        magic, version = cursor.raw(4), cursor.scalar("I")
        if magic != b"GGUF" or version not in {2, 3}:
            raise SetupError(
                f"not a GGUF file of version 2 or 3 (magic {magic!r}, version {version})"
            )
        tensor_count, metadata_count = cursor.scalar("Q"), cursor.scalar("Q")
        self.metadata: dict[str, Any] = {}
        for _ in range(metadata_count):
            key = cursor.string()
            self.metadata[key] = cursor.value(cursor.scalar("I"))
        self.tensors = dict(cursor.tensor() for _ in range(tensor_count))
        alignment = self.metadata.get("general.alignment", 32)
        self._data_start = -(-cursor.position // alignment) * alignment

    def tensor(self, name: str) -> Array:
        """One tensor as float32.

        Raises:
            SetupError: its type is none of F32, F16, BF16, Q4_0, Q4_1, Q8_0, or the file ends early.
        """
        info = self.tensors[name]
        count = int(np.prod(info.shape))
        if info.kind in _PLAIN_BYTES:
            size = count * _PLAIN_BYTES[info.kind]
        elif info.kind in _BLOCK_BYTES:
            size = count // _BLOCK * _BLOCK_BYTES[info.kind]
        else:
            raise SetupError(f"tensor {name} has type {info.kind}, which this reader doesn't know")
        start = self._data_start + info.offset
        data = self._bytes[start : start + size].copy()
        if data.size != size:
            raise SetupError(f"the file ends inside tensor {name}")
        return _dequantise(data, info.kind).reshape(info.shape)


class _Cursor:
    def __init__(self, view: memoryview) -> None:
        self._view = view
        self.position = 0

    def raw(self, size: int) -> bytes:
        data = bytes(self._view[self.position : self.position + size])
        self.position += size
        return data

    def scalar(self, code: str) -> Any:  # noqa: ANN401 - the file says what it is
        (value,) = struct.unpack_from(f"<{code}", self._view, self.position)
        self.position += struct.calcsize(f"<{code}")
        return value

    def string(self) -> str:
        return self.raw(self.scalar("Q")).decode("utf-8")

    def value(self, kind: int) -> Any:  # noqa: ANN401 - the file says what it is
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.scalar(_SCALARS[kind])
        item, count = self.scalar("I"), self.scalar("Q")
        if item not in _SCALARS:
            return [self.value(item) for _ in range(count)]
        layout = f"<{count}{_SCALARS[item]}"
        values = struct.unpack_from(layout, self._view, self.position)
        self.position += struct.calcsize(layout)
        return list(values)

    def tensor(self) -> tuple[str, TensorInfo]:
        name = self.string()
        fastest_first = [self.scalar("Q") for _ in range(self.scalar("I"))]
        kind, offset = self.scalar("I"), self.scalar("Q")
        return name, TensorInfo(tuple(reversed(fastest_first)), kind, offset)


def _dequantise(data: Array, kind: int) -> Array:
    if kind == _F32:
        return data.view("<f4")
    if kind == _F16:
        return data.view("<f2").astype(np.float32)
    if kind == _BF16:
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
    blocks = data.reshape(-1, _BLOCK_BYTES[kind])
    scale = _half(blocks[:, :2])
    if kind == _Q8_0:
        return scale * blocks[:, 2:].view(np.int8).astype(np.float32)
    if kind == _Q4_1:
        return scale * _nibbles(blocks[:, 4:]) + _half(blocks[:, 2:4])
    return np.asarray(scale * (_nibbles(blocks[:, 2:]) - 8))


def _half(pairs: Array) -> Array:
    halves: Array = np.ascontiguousarray(pairs).view("<f2")
    return halves.astype(np.float32)


def _nibbles(packed: Array) -> Array:
    return np.concatenate([packed & 0x0F, packed >> 4], axis=1).astype(np.float32)
