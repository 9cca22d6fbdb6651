"""Code that tries to get out of the sandbox, and code that doesn't."""

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from memserver_evals.colbench.sandbox.pool import Sandbox
from memserver_evals.colbench.sandbox.values import CallOutcome
from tests.memserver_evals.colbench.limits import PATIENT

pytestmark = pytest.mark.asyncio(loop_scope="module")

HARMLESS = """
import math
from collections import Counter

def helper(n):
    return math.factorial(n)

def answer(n):
    return [helper(n), Counter('aab')]
"""


async def one(sandbox: Sandbox, source: str, call: str = "attack()") -> CallOutcome:
    (outcome,) = await sandbox.run(source, [call])
    return outcome


async def is_well(sandbox: Sandbox) -> bool:
    """Whether it still runs code, on all its workers."""
    outcomes = await asyncio.gather(*(one(sandbox, HARMLESS, "answer(3)") for _ in range(4)))
    return all(outcome.value and '"0x6"' in outcome.value for outcome in outcomes)


async def test_code_with_imports_and_helpers_gives_its_values(sandbox: Sandbox) -> None:
    first, second, third = await sandbox.run(HARMLESS, ["answer(3)", "answer('x')", "answer(4)"])
    assert first.value == json.dumps(
        ["list", ["int", "0x6"], ["dict", ['"a"', ["int", "0x2"]], ['"b"', ["int", "0x1"]]]]
    )
    assert second.error.startswith("TypeError")
    assert third.value is not None


async def test_calls_don_t_see_what_an_earlier_call_left_in_globals(sandbox: Sandbox) -> None:
    source = "seen = []\ndef answer():\n    seen.append(1)\n    return len(seen)"
    assert {o.value for o in await sandbox.run(source, ["answer()"] * 3)} == {'["int", "0x1"]'}


async def test_chance_and_the_order_of_sets_are_the_same_in_every_process(sandbox: Sandbox) -> None:
    source = (
        "import random\ndef answer():\n    return [random.random(), list({'a', 'b', 'c', 'd'})]"
    )
    outcomes = await asyncio.gather(*(one(sandbox, source, "answer()") for _ in range(6)))
    assert len(set(outcomes)) == 1


async def test_many_jobs_at_once_each_get_their_own_values(sandbox: Sandbox) -> None:
    outcomes = await asyncio.gather(*(one(sandbox, HARMLESS, f"{n} + 1") for n in range(40)))
    assert [o.value for o in outcomes] == [f'["int", "{hex(n + 1)}"]' for n in range(40)]


async def test_threads_and_event_loops_work(sandbox: Sandbox) -> None:
    source = """
import asyncio, threading
def answer():
    got = []
    threads = [threading.Thread(target=got.append, args=(n,)) for n in range(3)]
    [t.start() for t in threads]; [t.join() for t in threads]
    async def main():
        await asyncio.sleep(0)
        return sorted(got)
    return asyncio.run(main())
"""
    assert (await one(sandbox, source, "answer()")).value == json.dumps(
        ["list", ["int", "0x0"], ["int", "0x1"], ["int", "0x2"]]
    )


PROCESSES = {
    "fork bomb": "while True: os.fork()",
    "daemon": "subprocess.Popen(['sleep', '1000'], start_new_session=True)",
    "spawned": "os.posix_spawn('/bin/sh', ['sh'], {})",
    "shell": "assert os.system('true') == 0",
    "replaced": "os.execv('/bin/sh', ['sh'])",
    "pool": "multiprocessing.Pool(2)",
    "by the kernel's number": "assert ctypes.CDLL(None).syscall(57) >= 0; raise PermissionError",
}


@pytest.mark.parametrize("attack", PROCESSES.values(), ids=PROCESSES)
async def test_no_process_can_be_started(sandbox: Sandbox, attack: str) -> None:
    source = f"import ctypes, multiprocessing, os, subprocess\ndef attack():\n    {attack}"
    outcome = await one(sandbox, source)
    assert outcome.value is None
    assert outcome.error.startswith(("PermissionError", "AssertionError", "OSError"))
    assert await is_well(sandbox)


SIGNALS = {
    "parent": "os.kill(os.getppid(), signal.SIGKILL)",
    "everybody": "os.kill(-1, signal.SIGKILL)",
    "group": "os.killpg(0, signal.SIGKILL)",
    "init": "os.kill(1, signal.SIGKILL) if os.getpid() != 1 else os.kill(2, signal.SIGKILL)",
    "by handle": "signal.pidfd_send_signal(os.pidfd_open(os.getppid() or 1), signal.SIGKILL)",
    "by ptrace": "assert ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0",
    "its limits": "resource.prlimit(os.getppid() or 7, resource.RLIMIT_CPU, (1, 1))",
}


@pytest.mark.parametrize("attack", SIGNALS.values(), ids=SIGNALS)
async def test_no_other_process_can_be_reached(sandbox: Sandbox, attack: str) -> None:
    source = f"import ctypes, os, resource, signal\ndef attack():\n    {attack}"
    outcome = await one(sandbox, source)
    assert outcome.error.startswith(("PermissionError", "AssertionError", "ProcessLookupError"))
    assert await is_well(sandbox)


SOCKETS = {
    "internet": "socket.create_connection(('1.1.1.1', 80), timeout=1)",
    "this machine": "socket.create_connection(('127.0.0.1', 22), timeout=1)",
    "server": "socket.socket().bind(('127.0.0.1', 0))",
    "local": "socket.socket(socket.AF_UNIX)",
    "raw": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "by name": "urllib.request.urlopen('http://example.org', timeout=1)",
}


@pytest.mark.parametrize("attack", SOCKETS.values(), ids=SOCKETS)
async def test_no_connection_can_be_opened(sandbox: Sandbox, attack: str) -> None:
    source = f"import socket, urllib.request\ndef attack():\n    {attack}"
    outcome = await one(sandbox, source)
    assert outcome.error.startswith(("PermissionError", "gaierror", "URLError"))


@pytest.mark.parametrize("path", ["/etc/passwd", "/proc/self/environ", "/proc/1/environ", __file__])
async def test_files_but_pythons_own_can_t_be_read(sandbox: Sandbox, path: str) -> None:
    if not (await sandbox.protection()).landlock:
        pytest.skip("the kernel has no Landlock")
    assert (await one(sandbox, "", f"open({path!r}).read()")).error.startswith("PermissionError")


async def test_nothing_outside_its_folder_can_be_written_or_deleted(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    if not (await sandbox.protection()).landlock:
        pytest.skip("the kernel has no Landlock")
    kept = tmp_path / "kept"
    kept.write_text("still here", encoding="utf-8")
    for attack in (
        f"open({str(kept)!r}, 'w')",
        f"os.remove({str(kept)!r})",
        f"os.truncate({str(kept)!r}, 0)",
        f"os.rename({str(kept)!r}, 'here')",
        f"os.symlink('x', {str(tmp_path / 'new')!r})",
        f"open({str(tmp_path / 'new')!r}, 'w')",
    ):
        assert (await one(sandbox, "import os", attack)).value is None
    assert os.listdir(tmp_path) == ["kept"]
    assert kept.read_text(encoding="utf-8") == "still here"


async def test_it_may_delete_its_folder_and_finds_a_new_one_each_time(sandbox: Sandbox) -> None:
    source = """
import os, shutil
def attack():
    open('mine', 'w').write('x')
    shutil.rmtree(os.getcwd(), ignore_errors=True)
    shutil.rmtree('/', ignore_errors=True)
    return 'done'
"""
    assert (await one(sandbox, source)).value == '"done"'
    (left,) = await sandbox.run("import os", ["(open('a', 'w').close(), os.listdir('.'))"])
    assert left.value == json.dumps(["tuple", None, ["list", "a"]])
    assert (await one(sandbox, "import os", "os.listdir('.')")).value == '["list"]'


async def test_the_environment_says_nothing(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMSERVER_SECRET", "hunter2")
    async with Sandbox(PATIENT, workers=1) as fresh:
        outcome = await one(fresh, "import os", "sorted(os.environ)")
    assert outcome.value == json.dumps(["list", "LC_ALL", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED"])


async def test_it_has_nothing_open_but_its_result(sandbox: Sandbox) -> None:
    source = """
import os
def attack():
    found = []
    for number in range(200):
        try:
            os.fstat(number)
        except OSError:
            continue
        found.append(number)
    return found
"""
    assert (await one(sandbox, source)).value == json.dumps(
        ["list", *(["int", hex(number)] for number in range(4))]
    )


ENDS = {
    "exit": ("sys.exit()", "SystemExit"),
    "quit": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "at once": ("os._exit(0)", ""),
    "abort": ("os.abort()", ""),
    "crash": ("ctypes.string_at(1)", ""),
    "recursion": ("attack()", "RecursionError"),
    "memory": ("return len('x' * 10**11)", "MemoryError"),
    "memory by bits": ("x = []\n    while True: x.append(bytearray(10**6))", "MemoryError"),
    "disk": ("open('big', 'wb').write(bytes(10**8))", "OSError"),
    "files": ("[open(str(n), 'w') for n in range(1000)]", "OSError"),
}


@pytest.mark.parametrize(("attack", "error"), ENDS.values(), ids=ENDS)
async def test_one_call_s_end_is_not_another_s(sandbox: Sandbox, attack: str, error: str) -> None:
    source = f"import ctypes, os, sys\ndef attack():\n    {attack}\ndef good():\n    return 1"
    before, bad, after = await sandbox.run(source, ["good()", "attack()", "good()"])
    assert before == after == CallOutcome(value='["int", "0x1"]')
    assert bad.value is None
    assert bad.error.startswith(error) if error else bad.stop == "ended"
    assert await is_well(sandbox)


@pytest.mark.parametrize(
    ("attack", "source"),
    [
        ("while True: pass", ""),
        ("while True: print('x' * 10**6)", ""),
        ("while True: sys.stderr.write('x')", ""),
        ("import time; time.sleep(10**6)", ""),
        ("signal.pause()", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"),
        ("__import__('threading').Event().wait()", ""),
    ],
)
async def test_what_doesn_t_end_is_ended(attack: str, source: str) -> None:
    short = replace(PATIENT, cpu_seconds=0.2, wall_seconds=3)
    code = f"import signal, sys\n{source}\ndef attack():\n    {attack}"
    async with Sandbox(short, workers=1) as sandbox:
        first, second = await sandbox.run(code, ["attack()", "1"])
        assert first == CallOutcome(stop="time")
        assert second.value == '["int", "0x1"]'


async def test_a_job_has_a_limit_over_all_its_calls() -> None:
    short = replace(PATIENT, wall_seconds=1, job_seconds=2)
    async with Sandbox(short, workers=1) as sandbox:
        outcomes = await sandbox.run("import time", ["time.sleep(10**6)"] * 50)
        assert set(outcomes) == {CallOutcome(stop="time")}


async def test_too_much_output_ends_it(sandbox: Sandbox) -> None:
    flood = "import os\ndef attack():\n    while True: os.write(3, b'x' * 4096)"
    outcomes = await sandbox.run(flood, ["attack()", "1"])
    assert outcomes == (CallOutcome(stop="output"),) * 2
    assert await is_well(sandbox)


@pytest.mark.parametrize(
    "forged",
    [
        "'[\"value\", true]\\n' * 3",
        "'\\0ended'",
        "'garbage\\n'",
        "'[' * 10**5 + '\\n'",
        "'[1]\\n'",
        "'confined\\n'",
        "'\\0failed: it'",
    ],
)
async def test_what_is_written_on_the_result_channel_is_only_a_value(
    sandbox: Sandbox, forged: str
) -> None:
    source = f"import os\ndef attack():\n    os.write(3, ({forged}).encode())\n    os._exit(0)"
    outcomes = await sandbox.run(source, ["attack()", "attack()", "7"])
    assert len(outcomes) == 3
    assert all(o.value in {None, "true", '["int", "0x7"]'} for o in outcomes)
    assert await is_well(sandbox)


async def test_patched_builtins_touch_no_other_job(sandbox: Sandbox) -> None:
    source = """
import builtins, json, os, sys
def attack():
    builtins.isinstance = builtins.type = builtins.repr = lambda *a: True
    json.dumps = lambda *a: '[]'
    os.write = os._exit = sys.exit = lambda *a: 0
    sys.modules.clear()
"""
    await one(sandbox, source)
    assert await is_well(sandbox)


async def test_source_that_doesn_t_compile_fails_every_call(sandbox: Sandbox) -> None:
    outcomes = await sandbox.run("def f(:", ["f()", "1"])
    assert [o.error.split(":")[0] for o in outcomes] == ["SyntaxError"] * 2


async def test_text_that_is_no_text_does_no_harm(sandbox: Sandbox) -> None:
    outcomes = await sandbox.run("x = '\ud800'\n", ["x", "'\\x00'", "'é\\U0001f600'", "\x00"])
    assert outcomes[1].value == '"\\u0000"'
    assert outcomes[2].value is not None
    assert await is_well(sandbox)


async def test_a_cancelled_job_leaves_the_sandbox_usable(sandbox: Sandbox) -> None:
    waiting = asyncio.create_task(one(sandbox, "import time", "time.sleep(10**6)"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await is_well(sandbox)


async def test_it_is_not_root_s_rights_that_code_has(sandbox: Sandbox) -> None:
    assert (await sandbox.protection()).user == os.getuid() or os.getuid() == 0
    for attack in ("os.setuid(0) or os.chroot('/')", "os.mknod('x', 0o60000, 1)", "os.nice(-5)"):
        assert (await one(sandbox, "import os", attack)).error.startswith(
            ("PermissionError", "OSError")
        )
