"""Frontend collaboration: pictures of pages, generated layouts, simulated humans, similarity."""

import asyncio
import io
import json
import os
import statistics
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import get_args

import pytest
import pytest_asyncio
from PIL import Image
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from memserver.errors import InvalidInput, SetupError
from memserver.openai_http.client import EndpointClient
from memserver.openai_http.endpoint import Endpoint
from memserver.prompts import Prompts
from memserver_evals.colbench.chat import PartModel
from memserver_evals.colbench.frontend.browser import find_chromium
from memserver_evals.colbench.frontend.examples import FrontendExample, load_frontend
from memserver_evals.colbench.frontend.humans import NO_PAGE, LayoutViewer, ModelViewer, Viewer
from memserver_evals.colbench.frontend.layouts import (
    VIEWPORT,
    Layout,
    attributes,
    generate_layouts,
    read_layout,
)
from memserver_evals.colbench.frontend.rendering import (
    Renderer,
    RenderingFailed,
    Viewport,
    placeholder,
)
from memserver_evals.colbench.frontend.similarity import (
    ClipSimilarity,
    ImageStatistics,
    Similarity,
    black_picture,
)
from memserver_evals.colbench.frontend.task import FrontendTask, page_in
from memserver_evals.colbench.kinds import Kind
from memserver_evals.task import Material, Played, Reply, Task
from tests.memserver_evals.colbench.layout_agent import LayoutAgent
from tests.support.http_app import Current
from tests.support.nightly import times

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium"),
]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def renderer() -> AsyncIterator[Renderer]:
    async with Renderer(VIEWPORT, seconds=100) as made:
        yield made


@dataclass
class Remembering:
    """Renders each page once. That it looks the same each time is what one test is for."""

    renderer: Renderer
    pictures: dict[str, bytes] = field(default_factory=dict)

    async def render(self, page: str, *, kind: Kind = "answer") -> bytes:
        if page not in self.pictures:
            self.pictures[page] = await self.renderer.render(page)
        return self.pictures[page]


@pytest.fixture(scope="module")
def pictures(renderer: Renderer) -> Remembering:
    return Remembering(renderer)


def pixel(picture: bytes, x: int, y: int) -> tuple[int, ...]:
    with Image.open(io.BytesIO(picture)) as image:
        found = image.convert("RGB").getpixel((x, y))
    assert isinstance(found, tuple)
    return found


def size(picture: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(picture)) as image:
        return image.size


# --- pictures


async def test_a_page_is_rendered_whole_up_to_a_limit() -> None:
    async with Renderer(Viewport(300, 200, 500), seconds=100) as renderer:
        short = await renderer.render("<html><body>x</body></html>")
        middle = await renderer.render("<html><body style='margin:0;height:350px'></body></html>")
        endless = await renderer.render("<html><body style='height:90000px'></body></html>")
    assert [size(short), size(middle), size(endless)] == [(300, 200), (300, 350), (300, 500)]


async def test_the_same_page_gives_the_same_picture(renderer: Renderer) -> None:
    page = generate_layouts("test", 1)[0].example.reference
    pictures = await asyncio.gather(*(renderer.render(page) for _ in range(3)))
    assert len(set(pictures)) == 1


async def test_tailwind_comes_from_here_by_link_and_by_script(renderer: Renderer) -> None:
    for head in (
        '<link href="https://cdn.jsdelivr.net/npm/tailwindcss@2.2.19/dist/tailwind.min.css" rel="stylesheet">',
        '<script src="https://cdn.tailwindcss.com"></script>',
    ):
        picture = await renderer.render(f'<html>{head}<body class="bg-green-500"></body></html>')
        assert pixel(picture, 5, 5) == (16, 185, 129)


async def test_pictures_are_boxes_of_the_size_in_their_address(renderer: Renderer) -> None:
    picture = await renderer.render(
        '<html><body style="margin:0"><img style="display:block" src="https://picsum.photos/id/48/100/50">'
        '<div style="width:9px;height:9px;background:red"></div></body></html>'
    )
    assert pixel(picture, 3, 20) == (201, 206, 214)
    assert pixel(picture, 3, 55) == (255, 0, 0)
    assert b'width="800" height="600"' in placeholder("https://x.test/random/800x600?a=1")
    assert b'width="400" height="300"' in placeholder("https://x.test/a.png")
    assert b'width="4000" height="1"' in placeholder("https://x.test/9999/0")


async def test_nothing_is_fetched_from_anywhere(renderer: Renderer, tmp_path: Path) -> None:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    here = f"http://127.0.0.1:{server.server_port}"
    secret = tmp_path / "secret.html"
    secret.write_text("<body style='background:red'></body>", "utf-8")
    try:
        picture = await renderer.render(
            f"""<html><head><link rel="stylesheet" href="{here}/a.css"><link rel="preload" href="{here}/p" as="font">
            <link rel="prefetch" href="{here}/f"><link rel="dns-prefetch" href="{here}"><link rel="preconnect" href="{here}">
            <meta http-equiv="refresh" content="0;url={here}/refresh">
            <style>@import url("{here}/i.css"); @font-face {{font-family:x;src:url("{here}/font")}} body{{font-family:x;
            background:url("{here}/b.png")}}</style></head>
            <body>text<img src="{here}/a.png"><iframe src="{here}/frame"></iframe><iframe src="file://{secret}"></iframe>
            <object data="{here}/o"></object><video src="{here}/v" autoplay></video><audio src="{here}/au" autoplay></audio>
            <script src="{here}/s.js"></script><script>fetch("{here}/js"); new WebSocket("ws://127.0.0.1:{server.server_port}/w");
            </script></body></html>"""
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert asked == []
    with Image.open(io.BytesIO(picture)) as image:
        colours = image.convert("RGB").getcolors(10**6) or []
    assert (255, 0, 0) not in {colour for _, colour in colours}


async def test_a_page_that_leads_to_another_one_is_shown_itself(renderer: Renderer) -> None:
    picture = await renderer.render(
        '<html><head><meta http-equiv="refresh" content="0;url=http://127.0.0.1:9/"></head>'
        '<body style="background:lime"><img src="http://127.0.0.1:9/a.png"></body></html>'
    )
    assert pixel(picture, 600, 400) == (0, 255, 0)


async def test_scripts_don_t_run(renderer: Renderer) -> None:
    picture = await renderer.render(
        "<html><body style='background:lime'><script>document.body.style.background='red';"
        "while(true){}</script><p onload='while(1){}'>x</p></body></html>"
    )
    assert pixel(picture, 600, 400) == (0, 255, 0)


@pytest.mark.parametrize(
    "page",
    ["", "<html>", "no page at all", "<html>\ud800\x00</html>", "<div>" * 30_000, "&" * 10**6],
)
async def test_any_text_gives_a_picture(renderer: Renderer, page: str) -> None:
    assert size(await renderer.render(page))[0] == VIEWPORT.width


async def test_a_page_that_takes_too_long_fails_alone() -> None:
    async with Renderer(VIEWPORT, seconds=0.001) as hurried:
        with pytest.raises(RenderingFailed):
            await hurried.render("<html></html>")


async def test_a_browser_that_died_is_started_again(renderer: Renderer) -> None:
    await renderer.render("<html></html>")
    browser = renderer._browsers["answer"]
    os.killpg(browser._process.pid, 9)
    await browser._process.wait()
    pictures = await asyncio.gather(
        *(renderer.render("<html></html>") for _ in range(3)), return_exceptions=True
    )
    assert all(isinstance(picture, bytes | RenderingFailed) for picture in pictures)
    assert await renderer.render("<html></html>")


async def test_references_and_answers_are_in_browsers_of_their_own() -> None:
    async with Renderer(VIEWPORT, seconds=100) as apart:
        pages = [apart.render("<html></html>", kind=kind) for kind in get_args(Kind)]
        assert len(set(await asyncio.gather(*pages))) == 1
        assert len({browser._process.pid for browser in apart._browsers.values()}) == 2


async def test_a_missing_or_broken_browser_is_reported() -> None:
    for program in ("/nowhere/chromium", "/bin/false"):
        async with Renderer(program=program) as renderer:
            with pytest.raises(SetupError, match="Chromium"):
                await renderer.render("<html></html>")


# --- generated layouts


async def test_a_layout_s_attributes_are_read_from_its_picture(pictures: Remembering) -> None:
    for task in generate_layouts("train", times(6, 24)):
        picture = await pictures.render(task.example.reference)
        assert read_layout(picture) == attributes(task.layout)


async def test_any_picture_can_be_read(pictures: Remembering) -> None:
    assert read_layout(black_picture())["cards"] == 0
    assert read_layout(await pictures.render("<html></html>"))["card"] == "none"


async def test_layouts_depend_on_seed_split_and_number_alone() -> None:
    assert generate_layouts("test", 9)[:3] == generate_layouts("test", 3)
    assert generate_layouts("test", 3) != generate_layouts("train", 3)
    for task in generate_layouts("test", 50):
        assert task.layout != Layout()
        assert not {task.layout.header, task.layout.card} & set(task.example.description.split())


def task_of(
    renderer: Remembering,
    viewer: Viewer | None,
    count: int = 4,
    similarity: Similarity | None = None,
) -> FrontendTask:
    examples = tuple(task.example for task in generate_layouts("test", count))
    return FrontendTask(examples, renderer, similarity or ImageStatistics(), viewer, Prompts())


async def play_all(task: FrontendTask, agent: LayoutAgent) -> list[Played]:
    return list(await asyncio.gather(*(task.play(e, agent) for e in task.examples())))


async def test_who_listens_gets_the_page_and_who_doesn_t_stays_behind(
    pictures: Remembering,
) -> None:
    count = times(2, 6)
    task = task_of(pictures, LayoutViewer(), count)
    oracle = await play_all(task, LayoutAgent())
    assert all(one.outcome["similarity"] == pytest.approx(1) for one in oracle)
    assert all(1 < len(one.turns) < 10 for one in oracle)
    single = task_of(pictures, None, count)
    zero_shot = await play_all(single, LayoutAgent(listens=False))
    assert (
        statistics.mean(
            single.reward(e, p) for e, p in zip(single.examples(), zero_shot, strict=True)
        )
        < 0.6
    )
    assert {len(one.turns) for one in zero_shot} == {1}


async def test_the_viewer_names_the_attribute_that_stands_out_most(pictures: Remembering) -> None:
    wanted = Layout(header="red", sidebar="left", cards=3, footer="blue")
    changes = [
        (wanted, "just what I had in mind"),
        (replace(wanted, footer="green"), "The footer should be blue; I see green."),
        (replace(wanted, cards=2, footer="green"), "There should be 3 cards; I see 2."),
        (replace(wanted, sidebar="right"), "a sidebar on the left; I see one on the right"),
        (replace(wanted, sidebar="none"), "a sidebar on the left; I see none"),
        (replace(wanted, page="pink"), "The background of the page should be white; I see pink."),
        (replace(wanted, card="red"), "The cards should be teal; I see red."),
    ]
    example = FrontendExample("x", "d", wanted.page_text())
    mine = await pictures.render(wanted.page_text())
    for made, said in changes:
        seen = await LayoutViewer().look(example, mine, await pictures.render(made.page_text()))
        assert said in seen.text
        assert seen.content == (made == wanted)


@dataclass
class Recited:
    """A system that says what it should."""

    lines: list[str | Reply]
    heard: list[str] = field(default_factory=list)
    name: str = "recited"

    @asynccontextmanager
    async def begin(self, example_id: str, material: Material) -> AsyncIterator["Recited"]:
        yield self

    async def say(self, text: str, *, at: datetime | None = None) -> Reply:
        line = self.lines[min(len(self.heard), len(self.lines) - 1)]
        self.heard.append(text)
        return line if isinstance(line, Reply) else Reply(line)


async def test_no_page_is_a_black_picture_and_the_last_page_counts(pictures: Remembering) -> None:
    task = replace(task_of(pictures, LayoutViewer(), 1), max_turns=3)
    (example,) = task.examples()
    silent = Recited(["I can't."])
    nothing = await task.play(example, silent)
    assert silent.heard[1:] == [NO_PAGE] * 2
    assert not nothing.outcome["rendered"]
    assert task.score(example, nothing)["turns"] == 3
    then_silent = Recited([f"OUTPUT: {Layout().page_text()}", "Hm.", "Hm."])
    kept = await task.play(example, then_silent)
    assert kept.outcome["page"] == Layout().page_text()
    perfect = await task.play(example, Recited([f"Thought.\nOUTPUT:\n{example.reference}\nDone."]))
    assert len(perfect.turns) == 1
    assert task.reward(example, perfect) == pytest.approx(1)
    failed = await task.play(example, Recited([Reply("", error="model_timeout")]))
    assert failed.outcome["error"] == "model_timeout"
    assert len(failed.turns) == 1


async def test_a_page_is_found_in_a_message() -> None:
    assert page_in("x <HTML lang='a'>b</HTML> y") == "<HTML lang='a'>b</HTML>"
    assert page_in("```html\n<html><p>") == "<html><p>"
    assert page_in("<htmlx>") is None


async def test_it_keeps_the_shape_of_a_task_and_names_its_measure(pictures: Remembering) -> None:
    task = task_of(pictures, LayoutViewer(), 1)
    assert isinstance(task, Task)
    assert task.groups(task.examples()[0]) == {"measure": "image statistics (not CLIP)"}
    assert "not CLIP" in task.data_hash


# --- a model that looks


async def test_a_model_looks_at_both_pictures(
    pictures: Remembering, current: Current, served: str
) -> None:
    bodies: list[dict[str, object]] = []

    async def chat(request: Request) -> JSONResponse:
        bodies.append(await request.json())
        text = "The header is <|im_end|> wrong. " + "x" * 2000
        return JSONResponse({"choices": [{"message": {"content": text}}]})

    current.app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    client = EndpointClient(Endpoint(served))
    viewer = ModelViewer(PartModel(client, "eyes"), Prompts())
    task = replace(task_of(pictures, viewer, 1), max_turns=2)
    played = await task.play(task.examples()[0], LayoutAgent())
    await client.aclose()
    sent = json.dumps(bodies[0])
    assert sent.count("data:image/png;base64,") == 2
    assert task.examples()[0].description in sent
    assert played.turns[1].said.startswith("The header is < |im_end|> wrong.")
    assert len(played.turns[1].said) == 1000
    assert len(json.dumps(played.exchanges[0].prompt)) < 3000


# --- similarity


@pytest.fixture
def tiny_clip(tmp_path: Path) -> Path:
    """A CLIP of the right shape whose weights are chance."""
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    small = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    config = transformers.CLIPConfig(
        text_config={**small, "vocab_size": 20},
        vision_config={**small, "image_size": 64, "patch_size": 16},
        projection_dim=16,
    )
    transformers.CLIPModel(config).save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


def statistics_of(_: Path) -> Similarity:
    return ImageStatistics()


@pytest.mark.parametrize("make", [statistics_of, ClipSimilarity])
async def test_a_picture_is_most_like_itself(
    make: Callable[[Path], Similarity], tiny_clip: Path, pictures: Remembering
) -> None:
    similarity = make(tiny_clip)
    one, near, far = [
        await pictures.render(layout.page_text())
        for layout in (
            Layout(page="white", header="red", cards=3),
            Layout(page="white", header="orange", cards=3),
            Layout(page="pink", header="black", cards=1, card="black", footer="black"),
        )
    ]
    assert await similarity.compare(one, one) == pytest.approx(1, abs=1e-5)
    assert await similarity.compare(one, far) == pytest.approx(
        await similarity.compare(far, one), abs=1e-5
    )
    assert -1 <= await similarity.compare(one, far) < 1
    assert await similarity.compare(one, near) > await similarity.compare(one, far)
    assert await similarity.compare(one, black_picture()) < 0.999


async def test_clip_takes_pictures_as_the_library_does(tiny_clip: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    similarity = ClipSimilarity(tiny_clip)
    processor = transformers.CLIPImageProcessorPil(
        size={"shortest_edge": 64}, crop_size={"height": 64, "width": 64}
    )
    image = Image.linear_gradient("L").resize((200, 120)).convert("RGB")
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    theirs = processor(images=image, return_tensors="pt")["pixel_values"][0]
    assert torch.allclose(
        torch.from_numpy(similarity._pixels(buffer.getvalue())), theirs, atol=0.02
    )


async def test_missing_weights_are_reported(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no CLIP"):
        ClipSimilarity(tmp_path / "absent")


# --- published files


async def test_published_pages_are_read(tmp_path: Path) -> None:
    good = {"problem_description": "A page.", "ground_truth": "<html></html>"}
    path = tmp_path / "pages.jsonl"
    path.write_text(f"{json.dumps(good)}\n", "utf-8")
    assert load_frontend(path) == (FrontendExample("frontend_00000", "A page.", "<html></html>"),)
    path.write_text(f"{json.dumps(good)}\n{json.dumps({**good, 'ground_truth': None})}\n", "utf-8")
    with pytest.raises(InvalidInput, match=r"pages.jsonl:2: ground_truth"):
        load_frontend(path)
    path.write_text(f"{json.dumps({**good, 'id': 'a'})}\n" * 2, "utf-8")
    with pytest.raises(InvalidInput, match="twice"):
        load_frontend(path)
