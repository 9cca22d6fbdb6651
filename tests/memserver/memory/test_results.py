"""What a search found can be read: in any window, in any script, however long the texts are."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from typing_extensions import override

from memserver.client.models import Passage
from memserver.client.requests import get
from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Call, ScriptedModel, Step, say
from tests.memserver.memory.histories import remember
from tests.support.server import OneDatabase, Server, serving

MARKET = "Today I went to the market. " * 30
FACT = "By the way, the zinc compass is in drawer nine."
WINDOWS = (1_280, 2_048, 8_192, 32_000, 200_000)
_PIECE = re.compile(r"[A-Za-z]{1,4}|[^A-Za-z]")


def small_vocabulary(text: str) -> int:
    """Tokens as a tokenizer counts that knows little but English: four letters in one, else each byte."""
    return sum(1 if each.isascii() else len(each.encode()) for each in _PIECE.findall(text))


class Searcher(ScriptedModel):
    """Does the calls that the person writes, one a line, and says "Done.". Its tools take no room."""

    def __init__(self, window: int = WINDOWS[-1]) -> None:
        super().__init__(_calls, context_window=window, count=small_vocabulary)

    @override
    def tools_text(self, tools: Sequence[ToolSpec]) -> str:
        return ""


def _calls(prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
    asked = [each for each in prompt if each.role == "user" and "[system]" not in each.text][-1]
    done = sum(message.role == "tool" for message in prompt[prompt.index(asked) :])
    calls = asked.text.partition("] ")[2].split("\n")
    if done == len(calls):
        return say("Done.")
    name, *arguments = calls[done].split("|")
    given: dict[str, Any] = dict(each.split("=", 1) for each in arguments)
    for number in {"page", "start"} & given.keys():
        given[number] = int(given[number])
    return Call(name, {**given, "request_heartbeat": True})


async def agent_of(server: Server, window: int | None = None) -> str:
    options = {} if window is None else {"context_window": window}
    return await server.create_agent(
        options={**options, "max_output_tokens": 128}, system_prompt="Search.", sections=[]
    )


async def results(server: Server, agent: str, *calls: str) -> list[str]:
    """What calls of tools give, each as it stands in the prompt after it."""
    answer = await server.say(agent, "\n".join(calls))
    stored = [each["tool_call"] for each in answer["messages"] if each["tool_call"]][: len(calls)]
    # What is saved after a pressure alert comes later.
    answered = [
        each for each in server.model.seen if "send_message" in {tool.name for tool in each.tools}
    ]
    shown = [each.text for each in answered[-1].prompt if each.role == "tool"]
    assert [text.removeprefix("OK. ") for text in shown[-len(calls) :]] == [
        call["result"] if call["state"] == "done" else f"Failed: {call['result']}"
        for call in stored
    ]
    return [call["result"] for call in stored]


@pytest.mark.parametrize("window", WINDOWS)
async def test_a_search_shows_what_it_found_however_far_after_the_start_that_is(
    database: OneDatabase, window: int
) -> None:
    async with serving(database, Searcher()) as server:
        agent = await agent_of(server, window)
        remember(server, agent, [MARKET + FACT])
        found = await results(
            server,
            agent,
            "recall_memory_search|query=zinc compass",
            "recall_memory_search_ignore_case|query=ZINC COMPASS",
        )
    for page in found:
        head, line = page.split("\n")
        assert head == "Showing 1 of 1 results (page 1/1):"
        assert line.startswith("[m1000, 2026-01-01 00:01, exact] user: ")
        assert "drawer nine." in page
        cut = page.endswith("(of 887 characters; memory_read m1000)")
        assert cut is ("the **zinc compass** is" in page) is (window < 3_000)


TEXTS = {
    "english": ("We talked of boats and of the weather in the bay. ", "The zinc compass is here. "),
    "digits": ("31 + 27 = 58; ", "zinc 9 compass "),
    "chinese": ("今天我们去市场买了很多东西。", "指南针在第九个抽屉里。"),
    "thai": ("วันนี้เราไปตลาดและซื้อของมากมาย", "เข็มทิศอยู่ในลิ้นชักที่เก้า"),
    "russian": ("Сегодня мы ходили на рынок. ", "Цинковый компас в девятом ящике. "),
    "one word": ("a", "zinc"),
    "emoji": ("👩‍👩‍👧", "🧭"),
    "blanks": ("\n \t", "zinc"),
}
ASKED = {
    "english": "zinc compass",
    "digits": "zinc 9 compass",
    "chinese": "指南针",
    "thai": "เข็มทิศ",
    "russian": "Цинковый компас",
    "emoji": "🧭",
}


@pytest.mark.parametrize("window", WINDOWS)
async def test_a_page_takes_a_quarter_of_the_window_at_most_and_has_each_match(
    database: OneDatabase, window: int
) -> None:
    async with serving(database, Searcher()) as server:
        for kind, (around, match) in TEXTS.items():
            agent = await agent_of(server, window)
            lengths = [100_000, 50, 3_000, 20_000, 1, 400, 100_000, 9_000, 2_000, 700, 5_000]
            parts = [around * (length // len(around) // 2 + 1) for length in lengths]
            texts = [f"{part}{match}{part}" for part in parts]
            remember(server, agent, texts)
            query = ASKED.get(kind, "zinc")
            [page] = await results(server, agent, f"recall_memory_search|query={query}")
            head, *lines = page.split("\n")
            assert small_vocabulary(page) <= window // 4, kind
            assert head.startswith(f"Showing {len(lines)} of 11 results (page 1/"), kind
            assert len(lines) == {1_280: 2, 2_048: 4}.get(window, 10), kind
            for line in lines:
                assert query in line, (kind, line)
                inside = line.partition("] ")[2].partition(": ")[2]
                assert_true(inside, texts, kind)


def assert_true(shown: str, texts: Sequence[str], kind: str) -> None:
    """A shown text is one of these, but for marks, what is left out, and line breaks."""
    shown = re.sub(r" \(of [\d,]+ characters; memory_read m\d+\)$", "", shown)
    pieces = [each.strip() for each in shown.replace("**", "").split("…")]
    plain = [re.sub(r"\s+", " ", text) for text in texts]
    for piece in filter(None, (re.sub(r"\s+", " ", each) for each in pieces)):
        assert any(piece in text for text in plain), (kind, piece[:80])


async def test_short_results_leave_their_room_to_long_ones(database: OneDatabase) -> None:
    async with serving(database, Searcher()) as server:
        agent = await agent_of(server, 8_192)
        short = [f"The zinc compass {number} is here." for number in range(9)]
        remember(server, agent, [*short, "Boats and bays. " * 800 + FACT])
        [page] = await results(server, agent, "recall_memory_search|query=zinc compass")
    lines = page.split("\n")[1:]
    assert [line.rpartition(": ")[2] for line in lines[1:]] == short[::-1]
    assert "**zinc compass**" in lines[0]
    assert 1_700 < small_vocabulary(page) <= 2_048


async def test_a_message_is_read_to_its_end_piece_after_piece(database: OneDatabase) -> None:
    text = "".join(f"Line {number} of a long story.\n" for number in range(700)) + FACT
    async with serving(database, Searcher()) as server:
        agent = await agent_of(server, 8_192)
        remember(server, agent, ["Before.", text, "After."])
        read, start, pieces = "", 1, []
        while start:
            [piece] = await results(server, agent, f"memory_read|label=m2000|start={start}")
            assert small_vocabulary(piece) <= 2_048
            assert piece.startswith("[m2000, 2026-01-01 00:02] assistant: ")
            body, _, tail = piece.partition("] assistant: ")[2].rpartition("\n(")
            pieces.append(tail)
            read += body
            following = re.search(r"Next: memory_read m2000, start (\d+)\.", tail)
            start = int(following[1]) if following else 0
    assert read == text
    assert len(pieces) > 3
    assert pieces[0].startswith("Characters 1 to ")
    assert pieces[-1].endswith(
        f"to {len(text)} of {len(text)}. Before it: m1000. After it: m3000.)"
    )


async def test_a_message_that_the_prompt_shows_shortened_says_how_to_read_it(
    database: OneDatabase,
) -> None:
    story = "".join(f"{number}. A long story. " for number in range(3_000))
    model = ScriptedModel(
        [
            Call("memory_read", {"label": "m1000", "start": 28_001, "request_heartbeat": True}),
            say("Done."),
        ],
        count=small_vocabulary,
        context_window=32_000,
    )
    async with serving(database, model) as server:
        agent = await server.create_agent()
        answer = await server.say(agent, story)
    [shown] = [each.text for each in model.seen[0].prompt if "[shortened: " in each.text]
    assert re.search(r"\[shortened: the whole has \d+ tokens; memory_read m1000\]", shown)
    result = answer["messages"][0]["tool_call"]["result"]
    assert story[28_000:34_000] in result


async def test_what_can_not_be_read_is_refused_with_the_reason(database: OneDatabase) -> None:
    async with serving(database, Searcher()) as server:
        agent, other = await agent_of(server), await agent_of(server)
        remember(server, other, ["A secret."])
        reported = await results(
            server,
            agent,
            "memory_read|label=compass",
            "memory_read|label=m5",
            "memory_read|label=m1009",
            "memory_read|label=p5",
            "memory_read|label=p5@handbook",
            "memory_read|label=m1000|start=0",
            "memory_read|label=[M1000]",
        )
    assert reported[0] == (
        "'compass' is no label. Take one as search results show it, such as m12003 or p17."
    )
    assert reported[1:5] == [
        "There is no message m5.",
        "There is no message m1009 yet.",
        "There is no passage p5.",
        "There is no passage p5@handbook: no collection 'handbook' is attached.",
    ]
    assert reported[5].startswith("start: m1000 has the characters 1 to ")
    assert "user: memory_read|label=compass" in reported[6]


async def test_passages_have_labels_by_which_they_are_read_in_shared_collections_too(
    database: OneDatabase,
) -> None:
    own = ["The anchor is blue.", "Boats and bays. " * 60 + "The zinc compass is in drawer nine."]
    async with serving(database, Searcher()) as server:
        agent, other = await agent_of(server, 1_280), await agent_of(server)
        new = {"name": "log of <s> 1"}
        made = (await server.http.post("/v1/collections", json=new)).json()["id"]
        for collection in (made, await own_collection(server, other)):
            await server.http.put(f"/v1/agents/{agent}/collections/{collection}")
        for url, texts in (
            (f"agents/{agent}/archival", own),
            (f"collections/{made}/passages", ["The zinc compass points north."]),
            (f"agents/{other}/archival", ["Zinc is a metal, a compass a thing."]),
        ):
            body = {"passages": [{"text": text} for text in texts]}
            assert (await server.http.post(f"/v1/{url}", json=body)).status_code == 201
        search = "archival_memory_search|query=zinc compass"
        pages = [(await results(server, agent, f"{search}|page={page}"))[0] for page in (1, 2)]
        labels = ["p1", "p2|start=991", "p1@log of <s> 1", "p1@log of < s> 1"]
        [first, second, shared, seen] = [
            (await results(server, agent, f"memory_read|label={label}"))[0] for label in labels
        ]
        name = (await server.get(other))["name"]
        found = await server.get(f"{agent}/archival/search", query="zinc compass")
        got = [await server.get(f"{agent}/passages/{each['label']}") for each in found["items"]]
        foreign = await server.http.get(f"/v1/agents/{other}/passages/p1@log of <s> 1")
    lines = dict(re.findall(r"^\[(p[^,]+), (.*)$", "\n".join(pages), re.MULTILINE))
    assert lines.keys() == {"p1", "p2", "p1@log of <s> 1", f"p1@{name}"}
    assert lines["p2"].endswith("nine. (of 995 characters; memory_read p2)")
    assert "The **zinc compass** is in drawer" in lines["p2"]
    assert first.endswith("] The anchor is blue.\n(After it: p2.)")
    assert second.endswith("] nine.\n(Characters 991 to 995 of 995. Before it: p1.)")
    assert shared == seen
    assert "] The zinc compass points north." in shared
    assert [each["text"] for each in got] == [each["text"] for each in found["items"]]
    assert foreign.status_code == 404


@pytest.mark.parametrize(
    "name", ["ships/log", "/a//b/", "two\nlines/of it", "../..", "a?b#c%2Fd", ";v=1/é 西"]
)
async def test_a_passage_is_read_by_its_label_whatever_its_collection_is_named(
    database: OneDatabase, name: str
) -> None:
    async with serving(database, Searcher()) as server:
        agent = await agent_of(server)
        made = (await server.http.post("/v1/collections", json={"name": name})).json()["id"]
        await server.http.put(f"/v1/agents/{agent}/collections/{made}")
        texts = {"passages": [{"text": "The zinc compass points north."}]}
        await server.http.post(f"/v1/collections/{made}/passages", json=texts)
        [found] = (await server.get(f"{agent}/archival/search", query="zinc"))["items"]
        path = "/agents/{agent}/passages/{label}"
        request = get(path, Passage, agent=agent, label=found["label"])
        read = await server.http.get(request.url)
    assert found["label"] == f"p1@{name}"
    assert read.status_code == 200, read.text
    assert read.json()["text"] == found["text"]


async def own_collection(server: Server, agent: str) -> str:
    [first, *_] = (await server.get(f"{agent}/collections"))["items"]
    return str(first["id"])


async def test_results_over_rest_are_whole_with_what_matched_and_one_message_can_be_fetched(
    database: OneDatabase,
) -> None:
    async with serving(database, Searcher()) as server:
        agent = await agent_of(server)
        remember(server, agent, ["Hello.", MARKET + FACT])
        [found] = (await server.get(f"{agent}/recall/search", query="zinc compass"))["items"]
        one = await server.get(f"{agent}/messages/{found['position']}")
        missing = await server.http.get(f"/v1/agents/{agent}/messages/7")
        waiting = await server.http.get(f"/v1/agents/{agent}/messages/3000")
    assert (found["text"], found["label"]) == (MARKET + FACT, "m2000")
    assert found["excerpt"].startswith("…")
    assert found["excerpt"].endswith("the **zinc compass** is in drawer nine.")
    assert 400 < len(found["excerpt"]) < 520
    assert one == {key: found[key] for key in one}
    assert [missing.status_code, waiting.status_code] == [404, 404]
    assert missing.json()["error"]["message"] == "There is no message m7."
