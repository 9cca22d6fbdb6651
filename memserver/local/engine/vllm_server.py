"""vLLM's OpenAI-compatible server in two processes that import it once, instead of three that each do.

Run by the engine's own Python, which has no memserver: `vllm_server.py CORES OPTIONS...`, or with
`--import` alone, which leaves the byte code of what a start imports. On a CPU vLLM
spawns its engine and that one's worker, and each imports torch and vLLM again, ten seconds of a core.
Here the engine is forked from the server, and VLLM_ENABLE_V1_MULTIPROCESSING=0 keeps the worker in it.
"""

import importlib
import multiprocessing
import os
import sys

_OF_A_START = (
    "vllm.model_executor.models.llama",
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker",
)
"""What the engine imports later than the server does."""


def main() -> None:
    """Serve until a signal ends it; the engine computes on the cores named first, such as 1,2,3."""
    from vllm.entrypoints.launchers.api_server.entry import main as serve  # noqa: PLC0415 - seconds
    from vllm.v1.engine import utils  # noqa: PLC0415 - seconds

    if sys.argv[1:] == ["--import"]:
        for name in _OF_A_START:
            importlib.import_module(name)
        return
    cores = [int(core) for core in sys.argv.pop(1).split(",")]
    os.register_at_fork(after_in_child=lambda: os.sched_setaffinity(0, cores))
    # vLLM's CPU platform insists on spawning. Nothing has computed in the server, so no thread of
    # OpenMP's is lost in the fork.
    utils.get_mp_context = lambda: multiprocessing.get_context("fork")
    serve()


if __name__ == "__main__":
    main()
