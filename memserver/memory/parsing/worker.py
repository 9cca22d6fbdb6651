"""The process that reads one file: bytes on stdin, JSON on stdout. `sandbox` starts it.

It bounds itself before it reads anything: memory, CPU seconds, no files written, no core dumps.
"""

import json
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from memserver.errors import DocumentError
from memserver.memory.parsing.base import SourceFile
from memserver.memory.parsing.parse import parse


def main() -> None:
    """Read a file; the arguments are bytes of memory, seconds of CPU, and what is known of the file, as JSON."""
    memory, seconds, known = sys.argv[1:]
    _bound(
        {
            resource.RLIMIT_AS: int(memory),
            resource.RLIMIT_CPU: int(seconds),
            resource.RLIMIT_FSIZE: 0,
            resource.RLIMIT_CORE: 0,
        }
    )
    answer: Mapping[str, Any]
    try:
        parsed = parse(SourceFile(sys.stdin.buffer.read(), **json.loads(known)))
        answer = {"parsed": parsed.to_json()}
    except DocumentError as error:
        answer = {"error": [type(error).__name__, error.message, error.hint]}
    sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False).encode())


def _bound(limits: Mapping[int, int]) -> None:
    for limit, value in limits.items():
        with suppress(ValueError, OSError):  # macOS knows no limit of the address space
            resource.setrlimit(limit, (value, value))


if __name__ == "__main__":
    main()
