"""How much memory this process may use: the machine's, or less where a container or a service limits it."""

import os
from collections.abc import Iterator
from pathlib import Path

OWN_GROUPS = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")


def memory_limit(own_groups: Path = OWN_GROUPS, groups: Path = GROUPS) -> int:
    """Bytes: the least of the machine's memory and the limits of all control groups (cgroups(7)) that this process is in."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_limits(own_groups, groups)])


def _limits(own_groups: Path, groups: Path) -> Iterator[int]:
    for file in _limit_files(own_groups, groups):
        try:
            yield int(file.read_text(encoding="ascii"))
        except (OSError, ValueError):  # a group that is seen from inside a container only, or "max"
            continue


def _limit_files(own_groups: Path, groups: Path) -> Iterator[Path]:
    """Those of each group and of the groups around it, which limit it too."""
    try:
        lines = own_groups.read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            top, name = groups, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        own = Path(path.lstrip("/"))
        yield from (top / group / name for group in (own, *own.parents))
