"""The nine tools by which an agent answers and moves facts between its memories (MemGPT, figure 3)."""

from functools import partial
from typing import Annotated

from pydantic import Field

from memserver.errors import ToolError
from memserver.memory import reading, working_context
from memserver.memory.archival import ArchivalQuery
from memserver.memory.dates import parse_range
from memserver.storage import collections
from memserver.storage.passages import NewPassage
from memserver.storage.recall import RecallQuery
from memserver.storage.sections import Editor
from memserver.tools.tool import RunnableTool, ToolContext, make_tool

SEND_MESSAGE = "send_message"

Section = Annotated[str, Field(description="Name of the section.", max_length=100)]
Text = Annotated[str, Field(max_length=2000)]
Query = Annotated[str, Field(description="What to look for.", max_length=200)]
Words = Annotated[str, Field(description="A word or phrase as it was written.", max_length=200)]
PageNumber = Annotated[int, Field(description="Page of the results, from 1.")]
Label = Annotated[str, Field(description="Such as m12003 or p17.", max_length=250)]
Start = Annotated[int, Field(description="Character to begin with, from 1.")]
Date = Annotated[str, Field(description="YYYY-MM-DD, or today, or now.", max_length=40)]


async def send_message(
    context: ToolContext,  # noqa: ARG001 - every tool takes it
    message: Annotated[str, Field(description="What to say.", min_length=1, max_length=4000)],
) -> str:
    """Say something to the person. Nothing else reaches them."""
    if not message.strip():
        raise ToolError("The message is empty. Say something.")
    return ""


async def working_context_append(context: ToolContext, section: Section, content: Text) -> str:
    """Add a line to a section of the working context, which you always see."""
    tx = await context.transaction.get()
    await working_context.append(tx, context.agent_id, section, content, _editor(context))
    return ""


async def working_context_replace(
    context: ToolContext, section: Section, old_content: Text, new_content: Text
) -> str:
    """Replace a text in the working context. old_content must match exactly; empty new_content deletes it."""
    tx = await context.transaction.get()
    await working_context.replace_text(
        tx, context.agent_id, section, old_content, new_content, _editor(context)
    )
    return ""


async def recall_memory_search(context: ToolContext, query: Query, page: PageNumber = 1) -> str:
    """Search all earlier messages: first those with these very words, then by words and meaning."""
    return await _recall(context, RecallQuery(text=query, before=context.before), page)


async def recall_memory_search_ignore_case(
    context: ToolContext, query: Words, page: PageNumber = 1
) -> str:
    """Search all earlier messages for a word or phrase, upper or lower case alike."""
    query_any_case = RecallQuery(text=query, ignore_case=True, before=context.before)
    return await _recall(context, query_any_case, page)


async def recall_memory_search_date(
    context: ToolContext, start_date: Date, end_date: Date, page: PageNumber = 1
) -> str:
    """List the earlier messages of a range of dates, both ends included."""
    since, until = parse_range(start_date, end_date, context.now, context.zone)
    return await _recall(
        context, RecallQuery(since=since, until=until, before=context.before), page
    )


async def archival_memory_insert(context: ToolContext, content: Text) -> str:
    """Keep a note or document in archival storage."""
    own = partial(collections.own_of, agent_id=context.agent_id)
    passage = NewPassage(content, created_at=context.now)
    await context.archival.insert(context.transaction, own, [passage])
    return ""


async def archival_memory_search(context: ToolContext, query: Query, page: PageNumber = 1) -> str:
    """Search archival storage by meaning."""
    searched = partial(collections.readable_by, agent_id=context.agent_id)
    found = await context.archival.search(
        context.scope, searched, ArchivalQuery(query), context.reader.page(page)
    )
    return await found.describe(context.zone, context.reader)


async def memory_read(context: ToolContext, label: Label, start: Start = 1) -> str:
    """Read one message or passage whole, by the label that results show."""
    tx = await context.transaction.get()
    found = await reading.find(tx, context.agent_id, label, until=context.position)
    await context.transaction.roll_back()  # nothing stays open while tokens are counted
    return await found.describe(start, context.zone, context.reader)


def memory_tools(*, more_after_answer: bool = False) -> list[RunnableTool]:
    """The nine, in the order in which the model sees them; `more_after_answer`: send_message too can ask for another step."""
    return [
        make_tool(send_message, heartbeat=more_after_answer, transactional=True, kind="memory"),
        *(
            make_tool(function, transactional=True, kind="memory")
            for function in (
                working_context_append,
                working_context_replace,
                recall_memory_search,
                recall_memory_search_ignore_case,
                recall_memory_search_date,
                archival_memory_insert,
                archival_memory_search,
                memory_read,
            )
        ),
    ]


def _editor(context: ToolContext) -> Editor:
    return Editor("tool", context.agent_id, context.position)


async def _recall(context: ToolContext, query: RecallQuery, page: int) -> str:
    if query.text is not None and not query.text.strip():
        raise ToolError("The query is empty. Name a word or phrase.")
    page_wanted = context.reader.page(page)
    found = await context.recall.search(context.scope, context.agent_id, query, page_wanted)
    return await found.describe(context.zone, context.reader)
