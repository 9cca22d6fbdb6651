"""Parses files in processes of their own, bounded in time and memory, that know no secret of ours.

A file from outside can crash a parser or make it run for ever; the server must not notice. The process
gets the file on stdin and none of the environment but where Python finds its modules.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field

from memserver import errors
from memserver.errors import DocumentCorrupt, DocumentError, DocumentTooCostly
from memserver.memory.parsing.base import Kind, Parsed

_MEGABYTE = 2**20


@dataclass(frozen=True, slots=True)
class Sandbox:
    """How much one file may cost."""

    seconds: float = 120  # of time until its text must be there
    megabytes: int = 1024
    tesseract: str = field(default_factory=lambda: shutil.which("tesseract") or "")

    async def parse(
        self, content: bytes, kind: Kind, language: str = "en", charset: str = ""
    ) -> Parsed:
        """A file's text with its sections and sentences; what is known of it is as `SourceFile` says.

        Raises:
            DocumentError: one of its kinds says why the file can't be read.
        """
        known = {
            "kind": kind,
            "charset": charset,
            "language": language,
            "tesseract": self.tesseract,
            "seconds": self.seconds,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # the working folder's modules are not ours
            "-m",
            "memserver.memory.parsing.worker",
            str(self.megabytes * _MEGABYTE),
            str(int(self.seconds) + 1),
            json.dumps(known),
            start_new_session=True,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "LC_ALL": "C.UTF-8"},
        )
        try:
            output, complaint = await asyncio.wait_for(process.communicate(content), self.seconds)
        except TimeoutError as error:
            raise DocumentTooCostly(
                f"Reading the file takes longer than {self.seconds:g} seconds."
            ) from error
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # what it has started, too
                await process.wait()
        if process.returncode:
            raise _failure(process.returncode, complaint.decode("utf-8", "replace"))
        return await asyncio.to_thread(_read, output)


def _failure(status: int, complaint: str) -> DocumentError:
    """Why a process ended that gave no answer."""
    lacks_memory = "MemoryError" in complaint or "memory allocation of" in complaint  # Rust's words
    if lacks_memory or status in {-signal.SIGXCPU, -signal.SIGKILL}:
        return DocumentTooCostly("Reading the file takes too much memory or time.")
    last = complaint.strip().rpartition("\n")[2]
    return DocumentCorrupt(
        "The parser failed on the file" + (f": {last[:200]}" if last else "."),
        hint="The file may be damaged. Open it and save it again, and send the result.",
    )


def _read(output: bytes) -> Parsed:
    answer = json.loads(output)
    if "error" in answer:
        kind, message, hint = answer["error"]
        raise getattr(errors, kind)(message, hint=hint)
    return Parsed.from_json(answer["parsed"])
