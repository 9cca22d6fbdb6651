"""Who runs the embedded Postgres, and where its files may lie.

Owns dropping root's privileges, private directories, and the choice of a place that the unprivileged
account can reach. Leaves the binaries, the cluster and the server to its neighbours.

Postgres refuses to run as root. As root we therefore run it under a uid of its own: one from 60578 to
61183, the range that no distribution and no container manager hands out, so no account needs creating
and no other service shares it. Where such a uid can't be had (a user namespace that doesn't map it),
`nobody` serves.
"""

import hashlib
import os
import pwd
import secrets
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from memserver.errors import SetupError

FREE_UIDS = range(60_578, 61_184)
PLAIN_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
MAX_SOCKET_PATH = 100  # the kernel's limit is 108 bytes on Linux and 104 on macOS
SOCKET_NAME = ".s.PGSQL.5432"


@dataclass(frozen=True)
class Account:
    """An unprivileged uid and gid for Postgres; None in its place means the account that we run as."""

    uid: int
    gid: int

    @property
    def is_known(self) -> bool:
        """Whether the system has a name for it; initdb needs one, the server doesn't."""
        return _is_named(self.uid)


def run_as(account: Account | None, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end under an account, with its output and errors in `stdout`.

    Raises:
        OSError: the account can't be taken on, or can't execute the command.
    """
    return subprocess.run(
        [str(word) for word in command],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        cwd="/",
        env=PLAIN_ENVIRONMENT,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )


def can_enter(account: Account | None, directory: Path) -> bool:
    """Whether the account can reach a directory; asked of the kernel, so ACLs count too."""
    try:
        return run_as(account, "/bin/sh", "-c", 'cd "$1"', "sh", directory).returncode == 0
    except OSError:
        return False


def choose_account(data: Path, root: Path) -> Account | None:
    """The account for a cluster: its owner if it exists already, else the best that can be had; each root has another uid."""
    owner = data.stat() if data.exists() else None
    if os.geteuid() != 0:
        if owner and owner.st_uid != os.geteuid():
            raise SetupError(
                f"The database in {data} belongs to another account (uid {owner.st_uid}).",
                hint="Run memserver as that account (or as root), or set MEMSERVER_HOME to a directory of your own.",
            )
        return None
    wanted = [Account(owner.st_uid, owner.st_gid)] if owner and owner.st_uid else _candidates(root)
    for account in wanted:
        if can_enter(account, Path("/")):
            return account
    raise SetupError(
        "Postgres refuses to run as root, and no unprivileged account can be taken on here.",
        hint="Run memserver as an ordinary user, or set MEMSERVER_DATABASE_URL to a Postgres of yours.",
    )


def named_account(account: Account | None) -> Account | None:
    """The same account if the system has a name for it, else `nobody`."""
    if account is None or account.is_known:
        return account
    nobody = _nobody()
    if nobody is None:
        raise SetupError(
            "Creating the database needs an unprivileged account with a name, and there is no `nobody`.",
            hint="Run memserver as an ordinary user, or set MEMSERVER_DATABASE_URL to a Postgres of yours.",
        )
    return nobody


def recorded_place(root: Path) -> Path | None:
    """Where `root/location` says that the cluster lies, if it isn't in `root` itself.

    Raises:
        SetupError: that directory is gone; beginning silently with an empty database would be worse.
    """
    pointer = root / "location"
    if not pointer.exists():
        return None
    place = Path(pointer.read_text(encoding="utf-8").strip())
    if place.is_dir():
        return place
    raise SetupError(
        f"The database of {root} lay in {place}, and that directory is gone.",
        hint=f"Bring it back (was it on a volume?), or delete {pointer} to begin with an empty database.",
    )


def choose_place(root: Path, account: Account | None, system_home: Path) -> Path:
    """The directory for a cluster: `root`, or one that the account can reach.

    As root the home often lies under a 0700 directory. We never loosen a directory
    that isn't ours; the cluster then goes to `system_home`, and `root/location` says where.
    """
    if can_enter(account, root):
        return root
    if (root / "data").exists():
        raise SetupError(
            f"The account that owns {root / 'data'} can't reach it.",
            hint="One of the directories above lost its search permission (chmod o+x); give it back.",
        )
    # A fresh name each time: a home that is deleted and made again must not meet the old database.
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:8] + "-" + secrets.token_hex(4)
    place = system_home / name
    make_traversable(system_home)
    make_traversable(place)
    if not can_enter(account, place):
        raise SetupError(
            f"The unprivileged account that runs Postgres can reach neither {root} nor {place}.",
            hint="Set MEMSERVER_HOME to a directory that other accounts may pass through, such as /srv/memserver.",
        )
    (place / "home").write_text(f"{root}\n", encoding="utf-8")
    (root / "location").write_text(f"{place}\n", encoding="utf-8")
    return place


def make_private(directory: Path, account: Account | None) -> None:
    """Make a directory that only the account can read; one that exists must already be so.

    Raises:
        SetupError: something else lies there, such as a directory that another user laid in wait.
    """
    uid = account.uid if account else os.geteuid()
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        found = directory.lstat()
        trusted = found.st_uid in {uid, os.geteuid()} and not stat.S_IMODE(found.st_mode) & 0o077
        if not stat.S_ISDIR(found.st_mode) or not trusted:
            raise SetupError(
                f"{directory} exists and isn't a private directory of uid {uid}.",
                hint=f"Look at what it is and remove it: rm -r {directory}",
            ) from None
    if account and directory.lstat().st_uid != uid:
        os.chown(directory, account.uid, account.gid, follow_symlinks=False)


def make_traversable(directory: Path) -> None:
    """Make a directory of ours that as root lets the unprivileged account pass; leave an existing one as it is."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        return
    if os.geteuid() == 0:
        directory.chmod(0o711)  # mkdir's own mode would lose to the umask


def socket_directory(place: Path) -> Path:
    """Where the cluster's socket lies; the same for every process, whatever its TMPDIR says."""
    wanted = place / "run"
    if len(os.fsencode(wanted / SOCKET_NAME)) <= MAX_SOCKET_PATH:
        return wanted
    return Path("/tmp") / f"memserver-{hashlib.sha256(os.fsencode(place)).hexdigest()[:16]}"


def _candidates(root: Path) -> list[Account]:
    offset = int.from_bytes(hashlib.sha256(os.fsencode(root)).digest()[:4], "big") % len(FREE_UIDS)
    own = FREE_UIDS[offset]
    nobody = _nobody()
    candidates = [] if _is_named(own) else [Account(own, own)]
    return candidates + ([nobody] if nobody else [])


def _nobody() -> Account | None:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return None
    return Account(entry.pw_uid, entry.pw_gid)


def _is_named(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
