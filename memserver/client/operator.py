"""What the server's operator looks at."""

from typing_extensions import Unpack

from memserver.client.methods import Resource, TransportT, items, method
from memserver.client.models import ModelEndpoint, Operations, Page, Report, ReportContent
from memserver.client.requests import Paged, Request, get


class Operator(Resource[TransportT]):
    """The server's load, its models' endpoint, and the results folder: for an admin key of the tenant `default`."""

    @method
    def operations(self, minutes: int = 60) -> Request[Operations]:
        """How the server does: turns a minute, latency, errors, what waits, jobs, the database's size.

        Args:
            minutes: how far to look back; a day at most.
        """
        return get("/operations", Operations, {"minutes": minutes})

    @method
    def endpoint(self) -> Request[ModelEndpoint]:
        """The models' endpoint as the process that answers sees it: its state, models and adapters."""
        return get("/endpoint", ModelEndpoint)

    @method
    def reports(self, **page: Unpack[Paged[str]]) -> Request[Page[Report, str]]:
        """List the runs of evaluations and trainings in the server's results folder, oldest first."""
        return get("/reports", Page[Report, str], page)

    all_reports = items(reports.build)

    @method
    def report(self, name: str) -> Request[ReportContent]:
        """One run's report: an evaluation's scores, or a training's figures and curves.

        Args:
            name: as the list has it.
        """
        return get("/reports/{name}", ReportContent, name=name)
