"""A policy that always searches and copies what it finds: the ceiling that the memory itself allows.

It stands where the model stands and drives memserver's own search tools; it understands nothing. What it can't answer, no model can find by these searches. It looks for what
the task says an oracle would look for, else for the question and its words; the keys of nested key-value
pairs it follows.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from typing_extensions import override

from memserver.agent.dependencies import ModelSource
from memserver.llm.base import ChatModel
from memserver.llm.wire import NOTICE_MARK
from memserver.messages import FunctionCall, PromptMessage, ToolSpec
from memserver.testing.scripted import Call, ScriptedModel, Step, count_bytes, say
from memserver.testing.scripted_rules import last_user_text

WINDOW = 1_000_000
MOST_STEPS = 100
"""Of a turn: what the agents of the oracle are given."""
MOST_CHARACTERS = 3900
"""Of send_message's 4000."""
MOST_WORDS = 8
MEANING, BY_WORD, ARCHIVAL = (
    "recall_memory_search_meaning",
    "recall_memory_search_ignore_case",
    "archival_memory_search",
)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PAIR = re.compile(rf'"({_UUID.pattern})": "({_UUID.pattern})"')
_PAGES = re.compile(r"\(page \d+/(\d+)")
_WORD = re.compile(r"[^\W_][\w'-]*")
_COMMON = frozenset(
    re.findall(
        r"\w+",
        """about after again also all and answer any are been before being but can could did does doing done
        each ever for from had has have having her here him his how into just like made many more most much
        name not only other our over said same she should some such tell than that the their them then there
        these they this those time under very want was well were what when where which while who whom whose
        why will with would you your yours""",
    )
)


@dataclass(frozen=True, slots=True)
class Made:
    """A search that was made in this turn, and its result."""

    call: FunctionCall
    result: str


@dataclass(frozen=True, slots=True)
class Oracle:
    """The policy; `hints` is what to look for."""

    hints: tuple[str, ...] = ()

    def __call__(self, prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
        question = last_user_text(prompt)
        made = searches_made(prompt)
        keys = _UUID.findall(" ".join(self.hints) or question)
        if keys:
            return _follow(keys[-1], made)
        wanted = _plan(question, self.hints, {tool.name for tool in tools})
        if len(made) < min(len(wanted), MOST_STEPS - 1):
            name, query = wanted[len(made)]
            return _search(name, query)
        return say(_copied(made) or "I found nothing.", inner_thought="I copy what I found.")


def searches_made(prompt: Sequence[PromptMessage]) -> list[Made]:
    made: list[Made] = []
    call: FunctionCall | None = None
    for message in prompt:
        if message.role == "user" and not message.text.startswith(NOTICE_MARK):
            made = []
        elif message.role == "assistant":
            call = message.call
        elif message.role == "tool" and call is not None:
            made.append(Made(call, message.text))
    return made


@dataclass(frozen=True, slots=True)
class OracleModels(ModelSource):
    """The policy as a model, for each agent another one; `hints` is what to look for, by the model's name."""

    hints: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @override
    def get(self, name: str | None, tenant: str = "") -> ChatModel:
        return ScriptedModel(
            Oracle(self.hints.get(name or "", ())),
            context_window=WINDOW,
            count=lambda text: count_bytes(text) // 4,
        )

    def route(self) -> Route:
        """Where an `OracleSystem` leaves hints."""

        async def take(request: Request) -> Response:
            self.hints[request.path_params["name"]] = tuple(await request.json())
            return Response(status_code=204)

        return Route("/hints/{name}", take, methods=["PUT"])


def _follow(key: str, made: Sequence[Made]) -> Step:
    """Look a key up, then its value, until that is no key.

    That is believed once a page came on which it stands nowhere, after one on which it does as a value, or
    when there are no more pages.
    """
    pairs = dict(pair for each in made for pair in _PAIR.findall(each.result))
    value, passed = key, {key}
    while value in pairs and pairs[value] not in passed:
        value = pairs[value]
        passed.add(value)
    looked = [each for each in made if each.call.arguments.get("query") == value]
    pages = [int(found[1]) for each in looked if (found := _PAGES.search(each.result))]
    more = not looked or (bool(pages) and len(looked) < pages[-1])
    seen = [value in each.result for each in looked]
    if more and not (any(seen) and not seen[-1]) and len(made) < MOST_STEPS - 1:
        return _search(ARCHIVAL, value, page=len(looked) + 1)
    return say(f"The value is {value}.", inner_thought="It is no key itself.")


def _plan(question: str, hints: Sequence[str], tools: set[str]) -> list[tuple[str, str]]:
    """The searches to make, the most specific first."""
    queries = [hint for hint in hints if hint.strip()]
    words = queries or _rare_words(question)
    plan = [(ARCHIVAL, query[:200]) for query in (queries or [question])]
    if MEANING in tools:
        plan += [(MEANING, query[:200]) for query in (queries or [question])]
    return plan + [(BY_WORD, word[:200]) for word in words]


def _rare_words(question: str) -> list[str]:
    """The question's words but the common ones, the longest first; at the end their beginnings, for other forms."""
    words = list(dict.fromkeys(word.lower() for word in _WORD.findall(question)))
    rare = [word for word in words if len(word) > 2 and word not in _COMMON]
    rare.sort(key=len, reverse=True)
    rare = rare[:MOST_WORDS]
    stems = [word[: max(4, len(word) - 3)] for word in rare if len(word) > 5]
    return list(dict.fromkeys(rare + stems))


def _copied(made: Sequence[Made]) -> str:
    """The results' lines, each result once, those first that most searches found."""
    times: Counter[str] = Counter()
    first: dict[str, str] = {}
    for each in made:
        for line in each.result.splitlines()[1:]:
            label = line.partition(",")[0]
            times[label] += 1
            first.setdefault(label, line)
    lines = sorted(first.values(), key=lambda line: -times[line.partition(",")[0]])
    text = ""
    for line in lines:
        if len(text) + len(line) + 1 > MOST_CHARACTERS:
            text += line[: MOST_CHARACTERS - len(text)]
            break
        text += f"{line}\n"
    return text.strip()


def _search(name: str, query: str, page: int = 1) -> Call:
    arguments = {"query": query, "page": page, "request_heartbeat": True}
    return Call(name, {"inner_thought": "I look.", **arguments})
