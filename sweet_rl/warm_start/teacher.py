"""The model that does the right thing, since it knows what each message is about.

It stands in for a model behind the real server: it sees the real prompt and the real results of its tools,
and decides by them, as a model must: what is in sight is answered, what is not is searched for, and what
is not found is admitted.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from random import Random

from typing_extensions import override

from memserver.llm.base import Reply, TextSink, Written
from memserver.llm.tokens import TokenCounter
from memserver.messages import FunctionCall, PromptMessage, TokenUsage, ToolSpec
from sweet_rl.offline_models import OfflineModel
from sweet_rl.warm_start import intents, remembering
from sweet_rl.warm_start.facts import Fact
from sweet_rl.warm_start.remembering import SECTION, Steps, call, last_result, notes, say
from sweet_rl.warm_start.wordings import read_data

_SAY = read_data("wordings")["agent"]

LONGEST_QUOTE = 120
MOST_LISTED = 5
NOTHING = "(none)"
NOTHING_TO_DO = "nothing_to_do"
ONLY_TALK = "Small talk only."
_SAID = re.compile(r"^\[[\d-]+\] user: (.+)$", re.MULTILINE)
_STAMP = re.compile(r"^\[[\d :-]+\] (user: |assistant: )?")
_TELLING_VALUES = ("person", "pet", "town", "title", "date", "company")
_NO_NOTE = "I find no {t} for {v}."


@dataclass(frozen=True, slots=True)
class Taught:
    prompt: tuple[PromptMessage, ...]  # what the model saw
    call: FunctionCall | None  # the right call; None where a text is asked for
    text: str  # the right text
    kind: str  # of the user's message, for figures by kind
    goal: str  # what a right call must hold, besides the right tool


@dataclass
class Teacher(OfflineModel):
    """The right answers of one conversation, written down as they are given."""

    counter: TokenCounter  # counts tokens as the student's tokenizer does
    window: int  # tokens that the student can see
    random: Random  # chooses the words
    memorable: frozenset[str] = frozenset()  # what the user says that a summary should keep
    lasting: Sequence[tuple[str, str]] = ()  # what the user says that is worth a note, and the note
    taught: list[Taught] = field(default_factory=list)
    name: str = "teacher"
    _intent: intents.Intent | None = None
    _steps: Steps | None = None

    def expect(self, intent: intents.Intent) -> None:
        self._intent, self._steps = intent, None

    @override
    async def call_tool(
        self,
        prompt: Sequence[PromptMessage],
        tools: Sequence[ToolSpec],
        *,
        max_tokens: int,
        on_text: TextSink | None = None,
    ) -> Reply:
        assert self._intent is not None
        if any(tool.name == remembering.NOTHING_TO_SAVE for tool in tools):
            call = remembering.save_before_eviction(self.lasting, prompt)
            goal = str(call.arguments.get("content", ""))
            self.taught.append(Taught(tuple(prompt), call, "", "alert", goal))
            return Reply(call, TokenUsage())
        if self._steps is None:
            self._steps = right_steps(self._intent, prompt, self.random)
            call = next(self._steps)
        else:
            assert not last_result(prompt).startswith("Failed"), last_result(prompt)
            call = self._steps.send(prompt)
        if remembering.is_lost(self._intent, call):
            return Reply(call, TokenUsage())
        kind = type(self._intent).__name__.lower()
        self.taught.append(Taught(tuple(prompt), call, "", kind, _goal(self._intent, call)))
        return Reply(call, TokenUsage())

    @override
    async def write(
        self, prompt: Sequence[PromptMessage], *, max_tokens: int, on_text: TextSink | None = None
    ) -> Written:
        text = right_summary(prompt[-1].text, self.memorable, most_words=int(max_tokens * 0.5))
        self.taught.append(Taught(tuple(prompt), None, text, "summary", ""))
        return Written(text, TokenUsage())


def right_steps(intent: intents.Intent, prompt: Sequence[PromptMessage], random: Random) -> Steps:
    match intent:
        case intents.Chat(reply=reply):
            yield say(reply)
        case intents.Tell(facts=facts, then=then):
            yield from _tell(facts, then, prompt, random)
        case intents.Change(old=old, new=new):
            yield from _change(old, new, prompt, random)
        case intents.Forget(fact=fact):
            yield from _forget(fact, prompt, random)
        case intents.Ask(fact=fact, known=known):
            yield from _ask(fact, prompt, random, known=known)
        case intents.AskAll(facts=facts):
            yield say(_list_all([fact for fact in facts if fact.note in notes(prompt)]))
        case intents.AskDay(day=day, words=words):
            yield from _ask_day(day, words)
        case intents.Notice(reply=reply):
            yield say(reply) if reply else call(NOTHING_TO_DO)
        case intents.Keep(note=note) | intents.LookUp(note=note):
            yield from _archive(note, random, keep=isinstance(intent, intents.Keep))
        case _:
            yield from remembering.steps(intent, prompt, random)


def ending(intent: intents.Intent) -> str:
    """How the turn ends that a teacher answers."""
    return "no_heartbeat" if intent == intents.Notice("") else "message_sent"


def right_summary(request: str, memorable: Collection[str], *, most_words: int) -> str:
    """New notes from the request for them: the old ones, then what happened in the new messages.

    Small talk is dropped, and so is what stands in the working context: it would be out of date there
    after the next change. The oldest lines go first where it gets too long.
    """
    before, _, after = request.partition("\n\nNew messages:\n")
    old = before.removeprefix("Notes so far:\n").strip()
    lines = [] if old in {NOTHING, ONLY_TALK} else old.splitlines()
    for said in _SAID.findall(after):
        text = said.removesuffix("…")
        if any(each.startswith(text) for each in memorable):
            lines.append(f"The user said: {said}")
    while lines and sum(len(line.split()) for line in lines) > most_words:
        lines.pop(0)
    return "\n".join(lines) or ONLY_TALK


def _tell(
    facts: Sequence[Fact], then: intents.Ask | None, prompt: Sequence[PromptMessage], random: Random
) -> Steps:
    shown = prompt
    new = [fact for fact in facts if fact.note not in notes(prompt)]
    for fact in new:
        shown = yield call(
            "working_context_append", section=SECTION, content=fact.note, request_heartbeat=True
        )
    if then is not None:
        yield from _ask(then.fact, shown, random, known=then.known)
        return
    fact = random.choice(facts)
    forms = _SAY["thanks_for_habit"] if fact.kind.value == "habit" else _SAY["thanks"]
    yield say(random.choice(forms if new else _SAY["knew"]).format(v=fact.value))


def _archive(note: intents.Note, random: Random, *, keep: bool) -> Steps:
    if keep:
        content = note.filled("{T} for {v}: {l}")
        yield call("archival_memory_insert", content=content, request_heartbeat=True)
        yield say(note.filled(random.choice(_SAY["kept"])))
        return
    query = note.filled("{t} for {v}")
    shown = yield call("archival_memory_search", query=query, request_heartbeat=True)
    found = note.items in last_result(shown)
    yield say(note.filled(random.choice(_SAY["looked_up"]) if found else _NO_NOTE))


def _forget(fact: Fact, prompt: Sequence[PromptMessage], random: Random) -> Steps:
    if fact.note in notes(prompt):
        yield _replace(fact.note, "")
    yield say(random.choice(_SAY["forgotten"]))


def _change(old: Fact, new: Fact, prompt: Sequence[PromptMessage], random: Random) -> Steps:
    if old.note in notes(prompt):
        yield _replace(old.note, new.note)
    else:
        yield call(
            "working_context_append", section=SECTION, content=new.note, request_heartbeat=True
        )
    yield say(random.choice(_SAY["updated"]).format(v=new.value))


def _ask(fact: Fact, prompt: Sequence[PromptMessage], random: Random, *, known: bool) -> Steps:
    answer = fact.filled(random.choice(fact.kind.answer))
    if known and _in_sight(fact, prompt):
        yield say(answer)
        return
    for tool in ("recall_memory_search", "recall_memory_search_ignore_case"):
        shown = yield call(tool, query=fact.kind.key, request_heartbeat=True)
        if known and any(_tells(line, fact) for line in last_result(shown).splitlines()):
            yield say(answer)
            return
    yield say(fact.filled(random.choice(_SAY["unknown"])))


def _ask_day(day: str, words: str) -> Steps:
    shown = yield call(
        "recall_memory_search_date", start_date=day, end_date=day, request_heartbeat=True
    )
    lines = re.findall(r"^\[m\d+, [^\]]+\] user: (.+)$", last_result(shown), re.MULTILINE)
    if not lines:
        yield say(f"I find nothing {words}.")
        return
    said = lines[0]
    quote = said if len(said) <= LONGEST_QUOTE else said[:LONGEST_QUOTE].rsplit(" ", 1)[0] + " …"
    opening = words[:1].upper() + words[1:]
    yield say(f"{opening} you told me: {quote}")


def _list_all(facts: Sequence[Fact]) -> str:
    if not facts:
        return "Not much yet. Tell me something about yourself!"
    listed = "; ".join(fact.note for fact in facts[:MOST_LISTED])
    more = " And some more." if len(facts) > MOST_LISTED else ""
    return f"This is what I know: {listed}.{more}"


def _in_sight(fact: Fact, prompt: Sequence[PromptMessage]) -> bool:
    if fact.note in notes(prompt):
        return True
    said = (str(part.call.arguments.get("message", "")) for part in prompt if part.call is not None)
    texts = (*(part.text for part in prompt), *said)
    return any(_tells(line, fact) for text in texts for line in text.splitlines())


def _tells(line: str, fact: Fact) -> bool:
    """Whether a line tells the fact: its value, and its thing where the value alone says little."""
    text = _STAMP.sub("", line)
    if not re.search(rf"(?<!\w){re.escape(fact.value)}(?!\w)", text, re.IGNORECASE):
        return False
    return fact.kind.value in _TELLING_VALUES or fact.kind.key.split()[-1].lower() in text.lower()


def _goal(intent: intents.Intent, call: FunctionCall) -> str:
    """What a right call must hold, word for word; empty where any words will do."""
    if call.name != "send_message":
        texts = [value for value in call.arguments.values() if isinstance(value, str)]
        return next(filter(None, reversed(texts)), "")
    said = str(call.arguments["message"])
    match intent:
        case intents.Ask(fact=fact) | intents.Tell(then=intents.Ask(fact=fact)):
            return fact.value if fact.value.lower() in said.lower() else "haven't"
        case intents.Notice(goal=goal):
            return goal
        case intents.AskDay() | intents.LookUp():
            return said[-20:]
        case intents.AskAll(facts=facts):
            return next((fact.value for fact in facts if fact.value in said), "")
        case intents.Remember() | intents.Consult() | intents.Follow():
            return said.split(". ")[0].split(", DOCUMENT")[0]
        case _:
            return ""


def _replace(old: str, new: str) -> FunctionCall:
    return call(
        "working_context_replace",
        section=SECTION,
        old_content=old,
        new_content=new,
        request_heartbeat=True,
    )
