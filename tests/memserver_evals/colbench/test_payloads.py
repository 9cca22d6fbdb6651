"""Code that tries to change something outside of its folder: as root and not, with namespaces and without.

What it tries it on belongs to the user that it runs as, in a tree that it may read, so that nothing but the
sandbox is in its way.
"""

import errno
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from memserver_evals.colbench.sandbox import seccomp
from memserver_evals.colbench.sandbox.pool import Sandbox
from tests.memserver_evals.colbench.limits import PATIENT

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="calls by their numbers on x86_64"),
]

PRELUDE = """
import ctypes, fcntl, mmap, os, shutil, signal, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
V = VICTIM.encode()
FOLDER = os.path.dirname(VICTIM)
HERE = -100
def call(*arguments):
    result = libc.syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    return result if result >= 0 else -ctypes.get_errno()
def reading():
    return os.open(VICTIM, os.O_RDONLY)
def folder():
    return os.open(FOLDER, os.O_RDONLY)
def path_only():
    return os.open(VICTIM, os.O_PATH)
times = struct.pack("4q", 1, 0, 1, 0)
def chmod_of_32_bits():
    page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | 0x40, prot=7)  # below 4 GB
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    page[1024:1024 + len(V)] = V
    # push rbx; mov eax, 15; mov ebx, the path; mov ecx, 0o777; int 0x80; pop rbx; ret
    code = b"\\x53\\xb8\\x0f\\0\\0\\0\\xbb" + struct.pack("I", start + 1024)
    code += b"\\xb9\\xff\\x01\\0\\0\\xcd\\x80\\x5b\\xc3"
    page[:len(code)] = code
    return ctypes.CFUNCTYPE(ctypes.c_int)(start)()
"""
CHANGES = {
    # modes
    "chmod": "os.chmod(VICTIM, 0o777)",
    "chmod to nothing": "os.chmod(VICTIM, 0)",
    "chmod with root's rights for all": "os.chmod(VICTIM, 0o4755)",
    "chmod of the folder": "os.chmod(FOLDER, 0o777)",
    "fchmod": "os.fchmod(reading(), 0o777)",
    "fchmodat": "os.chmod('victim', 0o777, dir_fd=folder())",
    "fchmodat2": "call(452, HERE, V, 0o777, 0)",
    "fchmodat2 of a path": "call(452, path_only(), b'', 0o777, 0x1000)",
    "copymode": "shutil.copymode('/dev/null', VICTIM)",
    # owners
    "chown": "os.chown(VICTIM, os.getuid(), os.getgid())",
    "fchown": "os.fchown(reading(), os.getuid(), os.getgid())",
    "lchown": "os.lchown(VICTIM, os.getuid(), os.getgid())",
    "fchownat": "os.chown('victim', os.getuid(), os.getgid(), dir_fd=folder())",
    "fchownat of a path": "call(260, path_only(), b'', os.getuid(), os.getgid(), 0x1000)",
    # times
    "utime": "call(132, V, struct.pack('2q', 1, 1))",
    "utimes": "call(235, V, times)",
    "futimesat": "call(261, HERE, V, times)",
    "utimensat": "os.utime(VICTIM, (1, 1))",
    "utimensat of what is open": "os.utime(reading(), (1, 1))",
    "utimensat of the folder": "os.utime(FOLDER, (1, 1))",
    # attributes
    "setxattr": "os.setxattr(VICTIM, 'user.new', b'1')",
    "lsetxattr": "os.setxattr(VICTIM, 'user.new', b'1', follow_symlinks=False)",
    "fsetxattr": "os.setxattr(reading(), 'user.new', b'1')",
    "setxattrat": "call(463, HERE, V, 0, b'user.new', struct.pack('QII', ctypes.addressof(ctypes.c_char(b'1')), 1, 0), 16)",
    "removexattr": "os.removexattr(VICTIM, 'user.kept')",
    "lremovexattr": "os.removexattr(VICTIM, 'user.kept', follow_symlinks=False)",
    "fremovexattr": "os.removexattr(reading(), 'user.kept')",
    "removexattrat": "call(466, HERE, V, 0, b'user.kept')",
    "FS_IOC_SETFLAGS": "fcntl.ioctl(reading(), 0x40086602, struct.pack('l', 0x80040))",
    "FS_IOC_FSSETXATTR": "fcntl.ioctl(reading(), 0x401C5820, struct.pack('IIII12x', 0x80, 0, 0, 0))",
    "FS_IOC_SETVERSION": "fcntl.ioctl(reading(), 0x40087602, struct.pack('l', 7))",
    "file_setattr": "call(469, HERE, V, struct.pack('QIIII', 0x80, 0, 0, 0, 0), 24, 0)",
    # contents and names
    "truncate": "os.truncate(VICTIM, 0)",
    "open to truncate": "os.open(VICTIM, os.O_TRUNC)",
    "open to truncate for nothing else": "os.open(VICTIM, os.O_TRUNC | 3)",
    "creat": "call(85, V, 0o600)",
    "write": "os.open(VICTIM, os.O_WRONLY)",
    "write by the newest call": "call(437, HERE, V, struct.pack('3Q', 1, 0, 0), 24)",
    "unlink": "os.unlink(VICTIM)",
    "rename away": "os.rename(VICTIM, 'mine')",
    "rename onto": "open('mine', 'w').close() or os.rename('mine', VICTIM)",
    "exchange": "open('mine', 'w').close() or call(316, HERE, b'mine', HERE, V, 2)",
    "link": "os.link(VICTIM, 'mine')",
    "link beside": "os.link(VICTIM, VICTIM + '2')",
    "link of what is open": "call(265, path_only(), b'', HERE, b'mine', 0x1000)",
    "symlink": "os.symlink('x', FOLDER + '/new')",
    "mkdir": "os.mkdir(FOLDER + '/new')",
    "mknod": "os.mknod(FOLDER + '/new')",
    "fifo": "os.mkfifo(FOLDER + '/new')",
    "file without a name": "os.open(FOLDER, os.O_TMPFILE | os.O_RDWR)",
    "mmap": "mmap.mmap(reading(), 4, mmap.MAP_SHARED, mmap.PROT_WRITE)",
    "by one's own other folder": "os.mkdir('a') or os.symlink(FOLDER, 'a/b') or os.remove('a/b/victim')",
}


@dataclass(frozen=True)
class Case:
    sandbox: Sandbox
    folder: Path
    user: int

    def prepare(self) -> list[object]:
        """Make the file as it was, whatever was done to it; its state."""
        self.victim.unlink(missing_ok=True)
        self.victim.write_text("kept", encoding="utf-8")
        os.setxattr(self.victim, "user.kept", b"kept")
        os.chown(self.victim, self.user, -1)
        return self.state()

    @property
    def victim(self) -> Path:
        return self.folder / "victim"

    def state(self) -> list[object]:
        """All that there is to know of the file and its folder, but when they were read."""
        found: list[object] = [sorted(os.listdir(self.folder)), self.victim.read_bytes()]
        for path in (self.victim, self.folder):
            reported = os.stat(path)
            found += [
                reported.st_mode,
                reported.st_uid,
                reported.st_gid,
                reported.st_nlink,
                reported.st_size,
            ]
            found += [reported.st_mtime_ns, reported.st_ctime_ns]
        return found

    async def run(self, expression: str) -> str:
        """What came of an expression, in words."""
        source = f"VICTIM = {str(self.victim)!r}\n{PRELUDE}"
        (outcome,) = await self.sandbox.run(source, [expression])
        return outcome.shown


@pytest.fixture(scope="module")
def outside() -> Iterator[Path]:
    """A folder that code may read, as it may Python's packages."""
    top = Path(tempfile.mkdtemp())
    top.chmod(0o755)
    folder = top / "packages.zip"
    folder.mkdir()
    yield folder
    shutil.rmtree(top)


@pytest_asyncio.fixture(
    loop_scope="module",
    scope="module",
    params=[(user, how) for user in ("root", "user") for how in ("namespaces", "none")],
    ids=" with ".join,
)
async def case(request: pytest.FixtureRequest, outside: Path) -> AsyncIterator[Case]:
    user, how = request.param
    os.chmod(outside, 0o700 if user == "root" else 0o755)  # root stays root for its own Python
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.path", [*sys.path, str(outside)])
        async with Sandbox(PATIENT, workers=1, namespaces=how == "namespaces") as sandbox:
            protection = await sandbox.protection()
            if protection.namespaces is not (how == "namespaces"):
                pytest.skip("this machine allows no namespaces")
            if (protection.user == 0) is not (user == "root"):
                pytest.skip(f"this Python isn't run by {user}")
            os.chown(outside, protection.user, -1)
            yield Case(sandbox, outside, protection.user)


async def test_it_is_only_the_sandbox_that_is_in_the_way(case: Case) -> None:
    case.prepare()
    assert await case.run("open(VICTIM).read()") == '"kept"'
    assert await case.run("os.stat(VICTIM).st_uid == os.getuid()") == "true"


@pytest.mark.parametrize("payload", CHANGES.values(), ids=CHANGES)
async def test_nothing_outside_is_changed(case: Case, payload: str) -> None:
    before = case.prepare()
    reported = await case.run(payload)
    assert case.state() == before, reported


CALLS = {  # what makes other processes, files or the kernel itself reachable
    "sigio of another process": "fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, os.getppid() or 1)",
    "a signal for it to be": "fcntl.fcntl(os.pipe()[0], fcntl.F_SETSIG, 9)",
    "a lease": "fcntl.fcntl(reading(), fcntl.F_SETLEASE, fcntl.F_RDLCK)",
    "a note of changes": "fcntl.fcntl(folder(), fcntl.F_NOTIFY, 1)",
    "a lock": "fcntl.flock(reading(), fcntl.LOCK_EX)",
    "letters to any socket": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "packets to any socket": "socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)",
    "a filter of packets": "socket.socketpair()[0].setsockopt(1, 26, bytes(16))",
    "core dumps": "(lambda r: r if r < 0 else 1 / 0 if r == 0 else r)(libc.prctl(4, 1))",
    "a thread with a network": "call(56, 0x40010F00, 0, 0, 0, 0)",
    "io_uring": "call(425, 1, bytes(120))",
    "aio": "call(206, 1, bytes(8))",
    "a key": "call(248, b'user', b'n', b'v', 1, -2)",
    "keyctl": "call(250, 0, -3, 0)",
    "bpf": "call(321, 0, bytes(72), 72)",
    "userfaultfd": "call(323, 1)",
    "process_vm_readv": "call(310, os.getppid() or 1, 0, 0, 0, 0, 0)",
    "ptrace": "call(101, 0, 0, 0, 0)",
    "pidfd_open": "call(434, os.getpid(), 0)",
    "pidfd_getfd": "call(438, 0, 0, 0)",
    "memfd_create": "call(319, b'x', 0)",
    "shmget": "call(29, 0, 4096, 0o1600)",
    "file handles": "call(303, HERE, V, struct.pack('II', 0, 0), bytes(4), 0)",
    "open by handle": "call(304, HERE, bytes(16), 0)",
    "open_tree": "call(428, HERE, b'/', 1)",
    "fsopen": "call(430, b'tmpfs', 0)",
    "personality": "call(135, 0x0040000)",
    "perf": "call(298, bytes(128), 0, -1, -1, 0)",
    "another filter": "call(317, 1, 0, 0)",
    "another Landlock": "call(444, 0, 0, 1)",
    "its nice value": "call(141, 0, 0, 5)",
    "its processors": "os.sched_setaffinity(0, os.sched_getaffinity(0))",
    "watches": "call(294, 0)",
    "sync of all disks": "call(162)",
    "locked memory": "call(151, 1)",
    "timers": "call(222, 1, 0, bytes(8))",
    "a session": "os.getsid(0) and call(109, 0, 0)",
    "the pages of a file": "call(27, 4096, 4096, bytes(8))",
}


@pytest.mark.parametrize("payload", CALLS.values(), ids=CALLS)
async def test_no_call_leads_out(case: Case, payload: str) -> None:
    case.prepare()
    reported = await case.run(payload)
    refused = [f'["int", "{hex(-number)}"]' for number in (errno.EPERM, errno.ENOSYS)]
    assert reported in refused or reported.startswith("PermissionError: [Errno 1]"), reported


async def test_a_call_that_isn_t_listed_is_refused_whatever_its_number(case: Case) -> None:
    probes = [335, 336]  # the kernel asks no filter for these: they are for its own trampolines
    listed = [*probes, *seccomp.numbers("x86_64").values()]
    for convention, skipped in ((0, listed), (0x40000000, [])):  # x32's calls have that bit
        reported = await case.run(
            f"[n for n in range(1024) if n not in {skipped}"
            f" and call({convention} + n, -1, -1, -1, -1, -1, -1) not in (-1, -38)]"
        )
        assert reported == '["list"]'


async def test_the_calls_of_32_bits_end_the_process(case: Case) -> None:
    before = case.prepare()
    assert await case.run("chmod_of_32_bits()") == "stopped: ended"
    assert case.state() == before


async def test_a_tree_too_deep_to_walk_is_deleted_too(case: Case) -> None:
    await case.run("[(os.mkdir('d'), os.chdir('d')) for _ in range(3000)]")
    await case.run("[os.mkdir(str(n), 0) for n in range(3)]")
    assert await case.run("os.listdir('.')") == '["list"]'
