"""What a scheduler does, as log lines for programs."""

from __future__ import annotations

import dataclasses
import logging
import re

from origins.batch import JSON
from runners.schedules.schedule_events import Ended, ScheduleEvent
from runners.schedules.schedule_screen import lines_of

log = logging.getLogger("wherry")


class ScheduleLog:
    """A listener that says every event of a scheduler in a line with its facts."""

    def __call__(self, event: ScheduleEvent) -> None:
        facts: dict[str, JSON] = {"event": re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()}
        for each in dataclasses.fields(event):
            if each.name not in ("report", "message"):
                facts["pipeline" if each.name == "name" else each.name] = getattr(event, each.name)
        if isinstance(event, Ended) and event.report is not None:
            facts["run"] = event.report.run
        level = logging.ERROR if isinstance(event, Ended) and event.status == "failed" else logging.INFO
        log.log(level, "%s", "\n".join(lines_of(event)), extra={"facts": facts})
