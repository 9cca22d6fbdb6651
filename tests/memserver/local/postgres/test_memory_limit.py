"""The memory that a process may use, as Linux' control groups of both versions tell it."""

import os
from pathlib import Path

import pytest

from memserver.local.postgres.memory_limit import memory_limit

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
NONE_OF_VERSION_1 = "9223372036854771712"


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/", {"memory.max": "67108864"}, 67108864),
        ("0::/", {"memory.max": "max"}, MACHINE),
        ("0::/", {}, MACHINE),
        ("0::/web/app", {"web/app/memory.max": "max", "web/memory.max": "5000"}, 5000),
        ("0::/web/app", {"web/app/memory.max": "4000", "web/memory.max": "5000"}, 4000),
        ("0::/app", {"other/memory.max": "4000"}, MACHINE),
        ("3:cpu:/\n4:memory:/docker/x", {"memory/memory.limit_in_bytes": "7000"}, 7000),
        (
            "4:hugetlb,memory:/docker/x",
            {
                "memory/memory.limit_in_bytes": NONE_OF_VERSION_1,
                "memory/docker/x/memory.limit_in_bytes": "6000",
            },
            6000,
        ),
        ("3:cpu:/", {"memory/memory.limit_in_bytes": "7000"}, MACHINE),
        (None, {"memory.max": "67108864"}, MACHINE),
    ],
)
def test_it_is_the_least_limit_around_the_process_or_the_machines(
    tmp_path: Path, own: str | None, files: dict[str, str], limit: int
) -> None:
    if own is not None:
        (tmp_path / "own").write_text(own + "\n")
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text + "\n")
    assert memory_limit(tmp_path / "own", tmp_path / "groups") == limit
