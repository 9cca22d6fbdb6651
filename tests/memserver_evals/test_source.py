"""Where data comes from: a path, a folder, the hub."""

import json
import sys
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from memserver.errors import BadData, SetupError
from memserver_evals.data.source import find_file
from memserver_evals.tasks import msc
from memserver_evals.tasks.registry import TaskOptions
from tests.memserver_evals import rows
from tests.support.http_app import Current


def test_the_first_of_the_names_that_is_in_the_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").touch()
    assert find_file(tmp_path, ("a.jsonl", "b.jsonl")) == tmp_path / "b.jsonl"


def test_a_file_that_is_named_is_a_path_or_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").touch()
    assert find_file(tmp_path, ("a.jsonl",), "mine.jsonl") == tmp_path / "mine.jsonl"
    assert find_file(None, ("a.jsonl",), str(tmp_path / "mine.jsonl")) == tmp_path / "mine.jsonl"
    with pytest.raises(BadData, match=r"There is no other\.jsonl in"):
        find_file(tmp_path, ("mine.jsonl",), "other.jsonl")


# --- the hub, as a stub that answers as the real one does


class Hub:
    """Serves one file of one data set, as the hub does: a HEAD with a commit and an ETag, and a GET."""

    COMMIT = "a" * 40

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.asked: list[str] = []
        self.app = Starlette(routes=[Route("/{path:path}", self.answer, methods=["GET", "HEAD"])])

    async def answer(self, request: Request) -> Response:
        self.asked.append(request.url.path)
        if request.url.path != "/datasets/someone/dialogues/resolve/main/made.jsonl":
            return Response(status_code=404, headers={"X-Error-Code": "EntryNotFound"})
        headers = {"X-Repo-Commit": self.COMMIT, "ETag": '"0123456789abcdef"'}
        if request.method == "HEAD":
            headers["Content-Length"] = str(len(self.content))
        return Response(self.content if request.method == "GET" else b"", headers=headers)


@pytest.fixture
def hub(served: str, current: Current, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    constants = pytest.importorskip("huggingface_hub.constants")
    file_download = pytest.importorskip("huggingface_hub.file_download")
    base = served.removesuffix("/v1")
    made = Hub((json.dumps(rows.msc()) + "\n").encode())
    current.app = made.app
    monkeypatch.setattr(constants, "ENDPOINT", base)
    template = base + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    monkeypatch.setattr(file_download, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
    return made


def test_a_file_of_the_hub_is_downloaded_once_and_read(hub: Hub) -> None:
    name = "hf:someone/dialogues/made.jsonl"
    task = msc.make(TaskOptions(None, extra={"file": name}))
    assert [example.id for example in task.examples()] == ["made_0"]
    got = hub.asked.copy()
    assert find_file(None, (), name).read_bytes() == hub.content
    assert len(hub.asked) - len(got) <= 1, "the second time only its version is asked for"


def test_a_file_that_the_hub_does_not_have_is_bad_data(hub: Hub) -> None:
    with pytest.raises(BadData, match=r"hf:someone/dialogues/other\.jsonl can't be had"):
        find_file(None, (), "hf:someone/dialogues/other.jsonl")


@pytest.mark.parametrize("name", ["hf:", "hf:someone", "hf:someone/dialogues", "hf:a b/c d/e"])
def test_a_name_that_names_no_file_of_the_hub_is_refused(name: str) -> None:
    pytest.importorskip("huggingface_hub")
    with pytest.raises(BadData, match=r"names no file|can't be had"):
        find_file(None, (), name)


def test_without_the_package_the_hub_is_a_matter_of_setup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(SetupError, match="huggingface_hub") as caught:
        find_file(None, (), "hf:someone/dialogues/made.jsonl")
    assert "pip install '.[eval]'" in caught.value.hint
