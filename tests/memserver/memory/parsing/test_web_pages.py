"""Of a web page its content is kept, of a Markdown file its front matter as metadata."""

import pytest

from memserver.memory.parsing.base import Kind, Parsed, SourceFile
from memserver.memory.parsing.parse import parse
from memserver.testing.scripted import ScriptedModel
from tests.support.server import OneDatabase, serving

WORDS = "The lighthouse of Farol was lit in 1844 and stands on the northern cape. " * 3
MENU = "<ul>" + "".join(f"<li><a href='/{n}'>Menu {n}</a></li>" for n in range(6)) + "</ul>"
PAGE = f"""<!doctype html><html><head><title>Farol</title><meta name="author" content="Zoë Quist">
<meta property="article:published_time" content="2024-03-05"></head><body>
<header><p>Site banner</p></header><div class="cookie-banner">We use cookies. Accept?</div>
<div id="top">{MENU}</div>
<div hidden>Hidden words</div><div style="display:none">Unseen words</div>
<div class="content"><h1>The lighthouse</h1><p>{WORDS}</p>
<p>See <a href="/a">the keeper</a>, <a href="/b">the bells</a> and the geese of the tower.</p></div>
<div class="share-buttons">Share on everything</div>
<aside>Most read this week</aside><footer>Imprint</footer></body></html>"""
BOILERPLATE = [
    "Site banner",
    "cookies",
    "Menu 3",
    "Hidden",
    "Unseen",
    "Share",
    "Most read",
    "Imprint",
]

BOMB = "---\nb0: &b0 [x, x]\n" + "".join(
    f"b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 9)}]\n" for n in range(1, 10)
) + "---\nMore."  # fmt: skip


def read(text: str, kind: Kind = "html") -> Parsed:
    return parse(SourceFile(text.encode(), kind))


def test_menus_banners_and_notices_are_left_out_and_the_text_stays() -> None:
    parsed = read(PAGE)
    assert [word for word in BOILERPLATE if word in parsed.text] == []
    assert "# The lighthouse" in parsed.text
    assert WORDS.strip() in parsed.text
    assert "See the keeper, the bells and the geese of the tower." in parsed.text
    assert parsed.metadata == {"title": "Farol", "author": "Zoë Quist", "date": "2024-03-05"}


def test_of_a_page_that_marks_its_main_part_that_is_kept() -> None:
    parsed = read(f"<html><body><div>Keys: press S</div><main><p>{WORDS}</p></main></body></html>")
    assert parsed.text == WORDS.strip()


@pytest.mark.parametrize(
    ("page", "kept"),
    [
        (f"<html><body><h1>Links</h1><div>{MENU}</div></body></html>", "Menu 3"),
        (f"<html><body><nav>Home</nav><footer>{WORDS}</footer></body></html>", "1844"),
        (f"<html><body><article><header><h1>Bells</h1></header><p>{WORDS}</p><aside>The fourth rings in fog.</aside><footer>By Zoë</footer></article></body></html>", "The fourth rings in fog."),
        (f"<html><body><article><header><h1>Bells</h1></header><p>{WORDS}</p></article></body></html>", "# Bells"),
        (f"<html><body><main><p>Short.</p></main><div><p>{WORDS}</p></div></body></html>", "1844"),
        (f"<html><body><div class='sidebar-layout'><p>{WORDS * 10}</p></div></body></html>", "1844"),
        ("<html><body><p>Between <!-- hidden --> words</p></body></html>", "Between words"),
    ],
    ids=["only links", "all in a footer", "an article's aside", "an article's header", "an empty main", "a class that sounds like a notice", "a comment"],
)  # fmt: skip
def test_what_may_be_content_stays(page: str, kept: str) -> None:
    assert kept in " ".join(read(page).text.split())


MATTER = "---\ntitle: Bells\ntags: [fog, storm]\ndate: 2024-03-05\nrank: 3\n---\n"


@pytest.mark.parametrize(
    "matter",
    [
        MATTER,
        "---\ntitle: Bells\ntags: fog, storm\ndate: '2024-03-05'\nrank: 3\n...\n",
        '+++\ntitle = "Bells"\ntags = ["fog", "storm"]\ndate = 2024-03-05\nrank = 3\n+++\n',
    ],
)
def test_front_matter_is_read_in_every_form(matter: str) -> None:
    parsed = read(f"{matter}\nThe fourth one.\n", "markdown")
    assert {**parsed.metadata, "tags": parsed.tags} == {
        "title": "Bells", "tags": ["fog", "storm"], "date": "2024-03-05", "rank": 3,
    }  # fmt: skip
    assert parsed.text == "# Bells\n\nThe fourth one.\n"


async def test_front_matter_becomes_metadata_and_tags_and_what_the_sender_says_counts_more(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        posted = await server.http.post(
            f"/v1/agents/{agent}/documents",
            content=f"{MATTER}\nThe fourth one rings in fog only.\n".encode(),
            params={"name": "bells.md", "metadata": '{"rank": 1}', "tags": ["mine"]},
        )
        await server.run_jobs()
        document = posted.json()["id"]
        done = (await server.http.get(f"/v1/documents/{document}")).json()
        file = await server.http.get(f"/v1/documents/{document}/file")
        [passage] = (await server.get(f"{agent}/archival"))["items"]
    expected = {"title": "Bells", "date": "2024-03-05", "rank": 1}
    assert done["metadata"].items() >= expected.items()
    assert passage["metadata"].items() >= {**expected, "heading": "Bells"}.items()
    assert (done["tags"], passage["tags"]) == (["mine", "fog", "storm"],) * 2
    assert passage["text"] == "# Bells\n\nThe fourth one rings in fog only."
    assert file.headers["content-disposition"] == "attachment; filename*=UTF-8''bells.md"


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("---\n\nA text between rules.\n\n---\n\nMore.", ""),
        ("---\na: [1\n---\nMore.", "can't be read"),
        ("---\nday: 2024-13-45\n---\nMore.", "can't be read"),
        ("---\na: .nan\n---\nMore.", "can't be read"),
        (f"---\na: {'x' * 70_000}\n---\nMore.", "32000 characters"),
        (BOMB, "32000 characters"),
        ("---\na: &a [*a]\n---\nMore.", "32000 characters"),
        ("---\n!!python/object/apply:os.system ['x']\n---\nMore.", "can't be read"),
    ],
    ids=["rules", "broken", "no date", "no number", "long", "bomb", "endless", "code"],
)  # fmt: skip
def test_front_matter_that_is_none_stays_text(text: str, warning: str) -> None:
    parsed = read(text, "markdown")
    assert parsed.text == text
    assert warning in "".join(parsed.warnings)
    assert bool(warning) == bool(parsed.warnings)
    assert parsed.metadata == {}
