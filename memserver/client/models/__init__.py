"""What the API answers, as frozen values. A field that a newer server adds is ignored.

The names and meanings are those of the API's own schema; a test compares the two.
"""

from memserver.client.models.agents import (
    Agent,
    AgentOptions,
    Component,
    ContextModel,
    ContextPart,
    ContextView,
    Health,
    ImportedAgent,
    NotCarried,
    Readiness,
)
from memserver.client.models.archival import (
    ArchivalResults,
    Collection,
    FoundPassage,
    Passage,
    Passages,
    SearchMode,
    Source,
)
from memserver.client.models.base import ErrorDetails, Page, Record
from memserver.client.models.documents import Document, DocumentText
from memserver.client.models.keys import ApiKey, CreatedKey, Scope, Tenant
from memserver.client.models.messages import (
    Answer,
    Coverage,
    FoundMessage,
    Message,
    RecallResults,
    ToolCall,
    Turn,
    Usage,
    WaitingCall,
    WaitsFor,
)
from memserver.client.models.sections import (
    Reader,
    Section,
    SectionByItself,
    SectionVersion,
    WorkingContext,
)
from memserver.client.models.timers import Timer
from memserver.client.models.tools import (
    AgentTool,
    McpServer,
    Tool,
    ToolKind,
)

__all__ = [
    "Agent",
    "AgentOptions",
    "AgentTool",
    "Answer",
    "ApiKey",
    "ArchivalResults",
    "Collection",
    "Component",
    "ContextModel",
    "ContextPart",
    "ContextView",
    "Coverage",
    "CreatedKey",
    "Document",
    "DocumentText",
    "ErrorDetails",
    "FoundMessage",
    "FoundPassage",
    "Health",
    "ImportedAgent",
    "McpServer",
    "Message",
    "NotCarried",
    "Page",
    "Passage",
    "Passages",
    "Reader",
    "Readiness",
    "RecallResults",
    "Record",
    "Scope",
    "SearchMode",
    "Section",
    "SectionByItself",
    "SectionVersion",
    "Source",
    "Tenant",
    "Timer",
    "Tool",
    "ToolCall",
    "ToolKind",
    "Turn",
    "Usage",
    "WaitingCall",
    "WaitsFor",
    "WorkingContext",
]
