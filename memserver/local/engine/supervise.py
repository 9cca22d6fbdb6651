"""Runs a command that must not outlive the process that wanted it.

A script of the standard library only, started by `process.py`: `supervise.py PARENT GRACE COMMAND...`.
It watches its parent, since a parent killed with SIGKILL can't clean up, and the command's whole
process group, since vLLM's workers survive their server's death.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG = 1
_INTERVAL = 0.2


def hold(parent: int, grace: float, command: list[str]) -> int:
    """Run the command until it ends, `parent` is not our parent any more, or SIGTERM asks for its end; its exit code.

    `grace` is the seconds between SIGTERM and SIGKILL.
    """
    wanted = True

    def let_go(*_: object) -> None:
        nonlocal wanted
        wanted = False

    signal.signal(signal.SIGTERM, let_go)
    signal.signal(signal.SIGINT, let_go)
    child = subprocess.Popen(command, process_group=0, preexec_fn=_end_with_supervisor)
    while wanted and child.poll() is None and os.getppid() == parent:
        time.sleep(_INTERVAL)
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(grace)
        except subprocess.TimeoutExpired:
            sys.stderr.write(f"supervise: still there {grace:g} s after SIGTERM, killing it\n")
    _kill_group(child.pid)
    code = child.wait()
    sys.stderr.write(f"supervise: the command ended with exit code {code}\n")
    return code if code >= 0 else 128 - code


def _end_with_supervisor() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(hold(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
