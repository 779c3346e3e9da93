"""The run history of a pipeline, for Python code: `pipeline.history`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from origins.batch import JSON
from runners.definitions.definition import definition_of
from runners.model.errors import Refusal
from runners.model.run_report import compute_trends
from runners.model.spec import PipelineSpec
from runners.operations.notebook_tables import RunList
from runners.operations.status import list_runs
from runners.state.run_history import WantedRuns


@dataclass(frozen=True)
class PipelineHistory:
    """The runs of a pipeline and what they reported. Each method raises `Refusal` if it keeps no run history."""

    pipeline: PipelineSpec

    def list(
        self,
        *,
        status: str = "",
        since: datetime | None = None,
        run: str = "",
        limit: int = 20,
        report: bool = False,
        archived: bool = False,
    ) -> RunList:
        """Return the newest runs, the newest first, as a list that a notebook shows as text.

        `run` is the beginning of a run's name.

        `report` adds what each run reported. `archived` adds runs that are older than `run.history`, without their
        reports.

        The status of a run is `running`, `succeeded`, `failed`, `stopped`, or `killed`. It is `killed` if its process
        ended without a report: another run took over, or the ledger shows that the process is dead.
        """
        wanted = WantedRuns(status=status, since=since, run=run, limit=limit, report=report, archived=archived)
        return RunList(list_runs(definition_of(self.pipeline).pipeline, wanted))

    def find(self, run: str) -> Mapping[str, JSON]:
        """Return the run whose name begins with this text, or the `last` run, with its report.

        Raises `Refusal` if there is no such run, or more than one.
        """
        last = run == "last"
        listed = self.list(run="" if last else run, limit=1 if last else 2, report=True)
        if len(listed) != 1:
            message = f"Several runs begin with {run!r}" if listed else f"There is no run {run!r}"
            raise Refusal(f"{'No run yet' if last else message}.", hint="See all runs:  wherry runs FILE")
        return listed[0]

    def quality(self, limit: int = 8) -> Sequence[Mapping[str, JSON]]:
        """Return each rule with its results in the newest runs, the oldest of these first."""
        return compute_trends(self.list(limit=limit, report=True))
