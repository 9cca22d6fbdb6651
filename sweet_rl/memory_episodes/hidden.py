"""The hidden information: what will be asked, its answer, where it lies, and whether it is out of sight by now.

It stands before the system message in a critic's prompt, in training and in ranking. No actor's prompt ever has it.
"""

from collections.abc import Sequence

from memserver.llm.wire import RESULT_MARK
from sweet_rl.memory_episodes.records import Task
from sweet_rl.trajectories import ChatMessage

_HEAD = "What will be asked at the end:"


def hidden_of(task: Task, prompt: Sequence[ChatMessage]) -> str:
    """The hidden information for a state, and for all of the stretch that begins with it."""
    first, notes = _queue_begins(task, prompt), prompt[0]["content"]
    rows = []
    for number, asked in enumerate(task.asked, 1):
        if asked.line is None:
            rows.append(f"{number}. {asked.text} It is never said.")
            continue
        where = [f"message {asked.line + 1}, the {task.lines[asked.line].speaker}'s"]
        if asked.line < first:
            where.append("out of sight")
        if asked.answer.casefold() in notes.casefold():
            where.append("noted")
        rows.append(
            f'{number}. {asked.text} Answer: {asked.answer}. "{asked.evidence}" ({", ".join(where)})'
        )
    return "\n".join([_HEAD, *rows])


def with_hidden(messages: Sequence[ChatMessage], hidden: str) -> list[ChatMessage]:
    """The messages with the hidden information at the start of the system message."""
    first, *rest = messages
    return [{"role": first["role"], "content": f"{hidden}\n\n{first['content']}"}, *rest]


def _queue_begins(task: Task, prompt: Sequence[ChatMessage]) -> int:
    """The number of the first line that the queue still holds; the questions follow the lines."""
    texts = [line.text for line in task.lines] + [asked.text for asked in task.asked]
    for message in prompt[1:]:
        content = message["content"]
        if content.startswith(RESULT_MARK):
            continue  # it may quote what is out of sight
        said = content.partition("] ")[2] if message["role"] == "user" else content
        if said in texts:
            return texts.index(said)
    return 0
