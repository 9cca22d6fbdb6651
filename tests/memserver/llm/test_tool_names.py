"""Which tool a decorated name means."""

import pytest

from memserver.llm.tool_names import resolve_name
from memserver.messages import ToolSpec


def tools(*names: str) -> list[ToolSpec]:
    return [ToolSpec(name, "", {}) for name in names]


OFFERED = tools("send_message", "search", "archival_memory_insert", "now")


def meant(name: object, *names: str) -> str | None:
    found = resolve_name(name, tools(*names) if names else OFFERED)
    return None if found is None else found.name


@pytest.mark.parametrize(
    "name",
    [
        "send_message<|channel|>commentary",
        "send_message<|channel|>analysis",
        "send_message<|channel|>",
        "send_message<|constrain|>json",
        "send_message <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.send_message <|constrain|>json<|message|>",
        "commentary to=functions.send_message<|constrain|>json",
        "assistant<|channel|>commentary to=functions.send_message",
        "send_message<|end|>",
        "send_message</s>",
        "send_message<\uff5ctool\u2581sep\uff5c>",
        "functions.send_message<|channel|>commentary",
        "functions.send_message",
        "functions.functions.send_message",
        "default_api.send_message",
        "default_api:send_message",
        "default_api::send_message",
        "tools.send_message",
        "functions/send_message",
        "memory/send_message",
        "functions:send_message",
        "functions_send_message",
        "mcp__memserver__send_message",
        "functions.send_message:0",
        "send_message:3",
        "send_messagejson",
        "send_messagecommentary",
        "send_messageanalysis",
        "send_messagecommentaryjson",
        "send_message json",
        "send_message_json",
        "Send_Message",
        "SEND_MESSAGE",
        "sendMessage",
        "send-message",
        "send message",
        "  send_message\n",
        '"send_message"',
        "`send_message`",
        "\u201csend_message\u201d",
        "send_message()",
        "send_message(",
        "send_message.",
        "functions.Send-Message()",
        "<function=send_message>",
        "<tool_call>send_message",
        'name="send_message"',
    ],
)
def test_a_name_with_a_known_decoration_means_the_tool(name: str):
    assert meant(name) == "send_message"


@pytest.mark.parametrize(
    "name",
    [
        *("fly", "", " ", "send", "send_messages", "research", "searching", "functions", "json"),
        *("please search", "do not send_message", "search.send_message", "search now"),
        *("<|channel|>commentary", "x" * 5000, "." * 5000, None, 3, ["search"]),
    ],
    ids=lambda name: str(name)[:30],
)
def test_any_other_name_means_none(name: object):
    assert meant(name) is None


@pytest.mark.parametrize(
    ("name", "offered", "tool"),
    [
        ("exportjson", ("export", "exportjson"), "exportjson"),
        ("exportjson<|channel|>commentary", ("export", "exportjson"), "exportjson"),
        ("functions.exportjson", ("export", "exportjson"), "exportjson"),
        ("exportjsonjson", ("export", "exportjson"), "exportjson"),
        ("Export_JSON", ("export", "export_json"), "export_json"),
        ("search<|channel|>analysis", ("search", "analysis"), "search"),
        ("functions.json", ("json", "search"), "json"),
        ("search", ("Search", "search"), "search"),
        ("SEARCH", ("Search", "search"), None),
        ("A-B", ("a-b", "a_b"), None),
        ("functions.A_b", ("a-b", "a_b"), None),
        ("search.now", ("search", "now"), None),
    ],
)
def test_an_exact_name_wins_and_of_several_that_it_could_be_none_is_taken(
    name: str, offered: tuple[str, ...], tool: str | None
):
    assert meant(name, *offered) == tool
