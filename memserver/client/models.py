"""What the API answers, as frozen values. A field that a newer server adds is ignored."""

from memserver.messages import WaitsFor as WaitsFor
from memserver.wire.agents import *  # noqa: F403 - all of it is the client's
from memserver.wire.archival import *  # noqa: F403
from memserver.wire.base import Component as Component
from memserver.wire.base import ErrorDetails as ErrorDetails
from memserver.wire.base import Health as Health
from memserver.wire.base import Page as Page
from memserver.wire.base import Readiness as Readiness
from memserver.wire.base import Record as Record
from memserver.wire.keys import *  # noqa: F403
from memserver.wire.messages import *  # noqa: F403
from memserver.wire.operations import *  # noqa: F403
from memserver.wire.sections import *  # noqa: F403
from memserver.wire.steps import *  # noqa: F403
from memserver.wire.tools import *  # noqa: F403
from memserver.wire.usage import *  # noqa: F403
from memserver.wire.webhooks import *  # noqa: F403
