"""A text is embedded once, however many systems, processes and runs need its vector."""

import asyncio
import io
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console
from typing_extensions import override

from memserver.embeddings.base import Vector
from memserver.errors import EmbeddingError
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted_rules import echo
from memserver_evals.progress import bars
from memserver_evals.systems.kept_vectors import KeptEmbedder
from memserver_evals.systems.vectors import VectorIndex
from tests.memserver_evals.support import endpoints, evaluate
from tests.support.server import OneDatabase

TEXTS = [f"word{number} of a library" for number in range(600)]


class Counting(HashingEmbedder):
    """Keeps what it is asked for, and fails once it was asked for so many texts."""

    def __init__(self, most: int = 2**31, model: str = "hashing") -> None:
        super().__init__(model=model)
        self.embedded: list[str] = []
        self.most = most

    @override
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        if len(self.embedded) >= self.most:
            raise EmbeddingError("It is down.")
        self.embedded += texts
        return await super().embed(texts)


async def nearest(inner: Counting, file: Path) -> list[int]:
    """The place of the text nearest to one's words, by a process that starts with this file."""
    index = VectorIndex(KeptEmbedder(inner, file))
    return await index.nearest("library", TEXTS, "word417 of a library", 1)


def test_documents_are_embedded_once_for_every_system_reading_and_run(
    database: OneDatabase, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded: list[str] = []
    asked = ("nq", "--system", "memserver", "--system", "retrieval", "--set", "documents=1,2,all")
    with endpoints(echo, monkeypatch, tmp_path, embedded=embedded, context_window=4096):
        for run in ("first", "second"):
            done = evaluate(
                *(*asked, "--data", str(folder), "--out", str(tmp_path / run)), database=database
            )
            assert done.error is None, done.output
            about_the_sea = [text for text in embedded if "The sea is salt." in text]
            assert about_the_sea == ["Sea\nThe sea is salt."]


async def test_what_was_embedded_before_an_outage_is_not_embedded_again(tmp_path: Path) -> None:
    file, failing, working = tmp_path / "vectors", Counting(most=300), Counting()
    with pytest.raises(EmbeddingError):
        await nearest(failing, file)
    assert await nearest(working, file) == [417]
    assert set(working.embedded) == set(TEXTS[256:])


async def test_each_model_has_vectors_of_its_own(tmp_path: Path) -> None:
    file, other = tmp_path / "vectors", Counting(model="other")
    await nearest(Counting(), file)
    assert await nearest(other, file) == [417]
    assert set(other.embedded) == set(TEXTS)


def cut_in_half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def write_over(file: Path) -> None:
    file.write_bytes(b"no database " * 1000)


def change_vectors(file: Path) -> None:
    with closing(sqlite3.connect(file)) as opened, opened:
        opened.execute("UPDATE vectors SET vector = zeroblob(1536) WHERE rowid % 3 = 0")
        opened.execute("UPDATE vectors SET vector = x'0000807f' WHERE rowid % 3 = 1")
        opened.execute("UPDATE vectors SET vector = 'text' WHERE rowid % 3 = 2")


@pytest.mark.parametrize("damage", [cut_in_half, write_over, change_vectors, Path.unlink])
async def test_a_damaged_file_is_made_again(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    file, first, second, third = tmp_path / "vectors", Counting(), Counting(), Counting()
    await nearest(first, file)
    damage(file)
    assert await nearest(second, file) == [417]
    assert second.embedded, "the file was damaged"
    await nearest(third, file)
    assert len(third.embedded) <= 256, "what was found damaged was replaced"
    fourth = Counting()
    await nearest(fourth, file)
    assert fourth.embedded == []


@pytest.mark.parametrize("foreign", ["folder", "other table"])
async def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path, foreign: str) -> None:
    file = tmp_path / "vectors"
    if foreign == "folder":
        file.mkdir()
    else:
        with closing(sqlite3.connect(file)) as opened, opened:
            opened.execute("CREATE TABLE vectors (place)")
    before = file.is_dir() or file.read_bytes()
    assert await nearest(Counting(), file) == [417]
    assert (file.is_dir() or file.read_bytes()) == before


async def test_several_processes_may_keep_the_same_vectors_at_the_same_time(tmp_path: Path) -> None:
    file, last = tmp_path / "vectors", Counting()
    found = await asyncio.gather(*(nearest(Counting(), file) for _ in range(4)))
    assert found == [[417]] * 4
    await nearest(last, file)
    assert last.embedded == []


async def test_a_dimension_that_only_answers_say_is_that_of_kept_vectors(tmp_path: Path) -> None:
    file = tmp_path / "vectors"
    await nearest(Counting(), file)
    inner = Counting()
    inner.dimension = 0
    embedder = KeptEmbedder(inner, file)
    [vector] = await embedder.embed(TEXTS[:1])
    assert inner.embedded == []
    assert embedder.dimension == len(vector) == 384


async def test_a_bar_shows_how_much_of_a_library_is_embedded(tmp_path: Path) -> None:
    shown = io.StringIO()
    with bars(Console(file=shown, force_terminal=True, width=120)):
        await nearest(Counting(), tmp_path / "vectors")
    assert "embedding" in shown.getvalue()
    assert "600/600" in shown.getvalue()
