import struct
from pathlib import Path

import pytest

from memserver.errors import SetupError
from tests.memserver.local.engine.gguf_writer import write_gguf

np = pytest.importorskip("numpy")
from memserver.local.engine.gguf import GGUFFile  # noqa: E402 - after the check for numpy


def half(value: float) -> bytes:
    return struct.pack("<e", value)


# Byte i of a 4-bit block holds weight i in its low half and weight i + 16 in its high half.
NIBBLES = bytes((15 - i) << 4 | i for i in range(16))
QUANTS = [*range(16), *reversed(range(16))]


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        pytest.param(0, struct.pack("<32f", *range(32)), list(range(32)), id="F32"),
        pytest.param(1, struct.pack("<32e", *range(32)), list(range(32)), id="F16"),
        pytest.param(30, b"\x80\x3f" * 31 + b"\x20\xc0", [1.0] * 31 + [-2.5], id="BF16"),
        pytest.param(2, half(0.5) + NIBBLES, [0.5 * (q - 8) for q in QUANTS], id="Q4_0"),
        pytest.param(
            3, half(0.5) + half(-2.0) + NIBBLES, [0.5 * q - 2.0 for q in QUANTS], id="Q4_1"
        ),
        pytest.param(
            8,
            half(0.25) + struct.pack("<32b", *range(-16, 16)),
            [0.25 * q for q in range(-16, 16)],
            id="Q8_0",
        ),
    ],
)
def test_a_tensor_is_dequantised_to_the_values_worked_out_by_hand(
    tmp_path: Path, kind: int, data: bytes, expected: list[float]
) -> None:
    path = write_gguf(
        tmp_path / "m.gguf", {}, {"before": ((1,), 0, bytes(4)), "t": ((32,), kind, data)}
    )
    assert GGUFFile(path).tensor("t").tolist() == expected


def test_blocks_run_along_the_rows(tmp_path: Path) -> None:
    rows = half(1.0) + bytes([1] * 32) + half(1.0) + bytes([2] * 32)
    path = write_gguf(tmp_path / "m.gguf", {}, {"t": ((2, 32), 8, rows)})
    assert GGUFFile(path).tensor("t").tolist() == [[1.0] * 32, [2.0] * 32]


def test_metadata_keeps_its_types(tmp_path: Path) -> None:
    metadata = {"name": "Zoë", "n": 7, "eps": 0.5, "tokens": ["a", "Ġb"], "kinds": [1, -3]}
    assert GGUFFile(write_gguf(tmp_path / "m.gguf", metadata, {})).metadata == metadata


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\x03\x04" + bytes(40), "not a GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "not a GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 5), "damaged"),
    ],
)
def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(SetupError, match=message):
        GGUFFile(path)


def test_an_unknown_tensor_type_and_a_short_file_are_refused(tmp_path: Path) -> None:
    file = GGUFFile(
        write_gguf(
            tmp_path / "m.gguf", {}, {"odd": ((32,), 14, bytes(32)), "short": ((99,), 0, b"")}
        )
    )
    with pytest.raises(SetupError, match="type 14"):
        file.tensor("odd")
    with pytest.raises(SetupError, match="ends inside"):
        file.tensor("short")
