"""An answer that looks for what isn't its own: the reference, its outputs, other answers."""

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from memserver_evals.colbench.backend.examples import BackendExample
from memserver_evals.colbench.backend.grading import Grader
from memserver_evals.colbench.sandbox.pool import Sandbox
from tests.memserver_evals.colbench.limits import PATIENT

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCAN = """
import ctypes, json, os, re

def heap():
    # write(2) refuses a page that isn't mapped, so that looking kills nothing
    libc = ctypes.CDLL(None)
    libc.sbrk.restype = ctypes.c_void_p
    reading, writing = os.pipe()
    page = libc.sbrk(ctypes.c_long(0)) - 4096 & ~4095
    found = []
    while libc.write(writing, ctypes.c_void_p(page), ctypes.c_size_t(4096)) == 4096:
        found.append(os.read(reading, 4096))
        page -= 4096
    return b"".join(reversed(found))
"""
ANSWER = (
    SCAN
    + """
RULE = re.compile(b"if n =" + rb"= (\\d+): return (\\d+)\\D")

def fee(n):
    return dict((int(a), int(b)) for a, b in RULE.findall(heap()))[n]
"""
)
"""It takes what is left of another source, whole or in pieces, for its own."""
RULES = "\n".join(f"    if n == {n}: return {n * n + 7}" for n in range(30))
REFERENCE = f"def fee(n):\n{RULES}\n    return 0\n"
"""0.9 kB, as published ones have."""
CALLS = tuple(f"fee({n})" for n in range(10))


def an_example(name: str) -> BackendExample:
    return BackendExample(name, "Write fee(n).", REFERENCE, CALLS)


async def test_an_answer_doesn_t_find_the_reference_in_its_memory(sandbox: Sandbox) -> None:
    grader = Grader(sandbox)
    shares = [(await grader.grade(an_example(str(n)), ANSWER)).share for n in range(4)]
    assert shares == [0, 0, 0, 0]


async def test_an_answer_doesn_t_find_another_answer_in_its_memory(sandbox: Sandbox) -> None:
    grader = Grader(sandbox)
    for n in range(4):
        assert (await grader.grade(an_example(str(n)), REFERENCE)).share == 1
        assert (await grader.grade(an_example(str(n)), ANSWER)).share == 0


async def test_no_output_of_a_reference_is_in_the_memory_of_an_answer(sandbox: Sandbox) -> None:
    source = (
        "import hashlib\ndef fee(n):\n"
        '    return [f\'{"out" + "put"}-{hashlib.md5(bytes([n, m])).hexdigest()}\' for m in range(30)]'
    )
    example = BackendExample("hashes", "Write fee(n).", source, CALLS)
    expected = await Grader(sandbox).expected(example)
    assert hashlib.md5(bytes([0, 0])).hexdigest() in str(expected[0].value)
    look = "sorted(map(str, set(re.findall(b'out' + b'put-[0-9a-f]{32}', heap()))))"
    for outcome in [*await sandbox.run(SCAN, [look] * 3), *await sandbox.run(SCAN, [look])]:
        assert outcome.value == '["list"]'


async def test_references_and_answers_have_servers_of_their_own() -> None:
    place = "__import__('os').getcwd()"  # a folder of the server, where there are no namespaces
    example = BackendExample("x", "d", "", (place,))
    async with Sandbox(PATIENT, workers=1, namespaces=False) as sandbox:
        (expected,) = await Grader(sandbox).expected(example)
        (got,) = await sandbox.run("", [place])
        (again,) = await Grader(sandbox).expected(example)
    assert expected == again != got


async def test_the_generator_of_tasks_can_t_be_read_where_it_is_installed(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespaces = (await sandbox.protection()).namespaces
    top = Path(tempfile.mkdtemp())
    os.chmod(top, 0o755)
    packages = top / "packages.zip"
    for name in ("memserver_evals/colbench/generator.py", "sweet_rl/x.py", "theirs/x.py"):
        (packages / name).parent.mkdir(parents=True)
        (packages / name).write_text("x = 1", encoding="utf-8")
    monkeypatch.setattr("sys.path", [*sys.path, str(packages)])
    async with Sandbox(PATIENT, workers=1, namespaces=namespaces) as fresh:
        own, training, theirs, listed = await fresh.run(
            f"import os\nP = {str(packages)!r}",
            [
                "open(P + '/memserver_evals/colbench/generator.py').read()",
                "open(P + '/sweet_rl/x.py').read()",
                "open(P + '/theirs/x.py').read()",
                "len(os.listdir(P))",
            ],
        )
    shutil.rmtree(top)
    assert own.error.startswith("PermissionError")
    assert training.error.startswith("PermissionError")
    assert theirs.value == '"x = 1"'
    assert listed.value == '["int", "0x3"]'
