"""Pictures that tools return: what a tool gives back becomes a text, and the pictures that it shows."""

from collections.abc import Callable
from dataclasses import dataclass

from memserver.errors import PictureRefused
from memserver.memory.pictures import MOST, PictureLimits, from_bytes, marker
from memserver.messages import Picture


@dataclass(frozen=True, slots=True)
class ToolPicture:
    """A picture that a tool returns, alone or in a list beside texts: PNG, JPEG, GIF or WebP.

    Attributes:
        data: the file's bytes.
        name: what stands for it in texts, such as the file's name.
    """

    data: bytes
    name: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the model reads of a tool's result, and sees."""

    text: str
    pictures: tuple[ToolPicture, ...] = ()


def tool_result(returned: object, as_text: Callable[[object], str]) -> ToolResult:
    """What a tool has returned, as the model is shown it; `as_text` makes a text of what is no picture."""
    if isinstance(returned, ToolResult):
        return returned
    parts = returned if isinstance(returned, list | tuple) else [returned]
    pictures = tuple(each for each in parts if isinstance(each, ToolPicture))
    if not pictures:
        return ToolResult(as_text(returned))
    texts = [
        marker(each.name) if isinstance(each, ToolPicture) else as_text(each) for each in parts
    ]
    return ToolResult("\n".join(texts), pictures)


def take(result: ToolResult, limits: PictureLimits) -> tuple[str, tuple[Picture, ...]]:
    """A result's text and pictures; the text says which were not taken, and why."""
    text, taken = result.text, list[Picture]()
    for number, each in enumerate(result.pictures, 1):
        try:
            if number > MOST:
                raise PictureRefused(f"{MOST} are the most.")
            taken.append(from_bytes(each.data, limits, each.name))
        except PictureRefused as error:
            text += f"\n[picture {number} was not taken: {error.message}]"
    return text, tuple(taken)
