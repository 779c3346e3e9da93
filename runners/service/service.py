"""The service: the pipelines of a folder, and what callers may do with them. REST and gRPC both call `answer`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from origins.lazy import SparkSession
from runners.definitions.definition import Definition, DefinitionsFolder
from runners.listeners.metrics import Metrics
from runners.model.clock import Clock
from runners.model.errors import Refusal
from runners.model.events import Listener
from runners.model.masking import hide_in_errors
from runners.model.spec import PipelineSpec
from runners.operations.pipeline_access import act_for
from runners.pipeline import Pipeline
from runners.schedules.run_marks import RunMarks
from runners.schedules.schedule_plan import ScheduleCatalog
from runners.service.arrivals import Arrivals
from runners.service.deeds import Deeds
from runners.service.definition_rules import DefinitionRules
from runners.service.happenings import Happenings
from runners.service.kept_answers import KeptAnswers
from runners.service.messages import PipelineList, Task
from runners.service.operation import Ask, Caller, Forbidden, NotFound, Operation, Reply
from runners.service.overview import Overview
from runners.service.plans import Plans
from runners.service.search.index import Index
from runners.service.tasks import Doing, Tasks
from runners.state.location import open_shared_session


@dataclass(kw_only=True)
class SharedSpark:
    """The one Spark of a server. It starts with the first run, and has the settings of all pipelines of the folder."""

    list_pipelines: Callable[[], Sequence[PipelineSpec]]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _spark: SparkSession | None = None

    def open(self) -> SparkSession:
        """Return the session. Raise `Refusal` if the pipelines cannot share one."""
        with self._lock:
            self._spark = self._spark or open_shared_session(self.list_pipelines())
            return self._spark

    @property
    def is_open(self) -> bool:
        """Whether it has started."""
        return self._spark is not None


@dataclass(kw_only=True)
class Service:
    """The pipelines of a folder, for callers over a network."""

    folder: DefinitionsFolder
    tasks: Tasks
    deeds: Deeds
    happenings: Happenings
    metrics: Metrics
    marks: RunMarks
    spark: SharedSpark
    plans: Plans
    """The changes that agents planned."""
    index: Index
    arrivals: Arrivals
    clock: Clock = field(default_factory=Clock)
    read_overview: Callable[[Service], PipelineList]
    """Reads the state of every pipeline."""
    load: Callable[..., Definition]
    """Loads the definition in a file with all its secrets, to carry rows with it. It is `definition.load`."""
    rules: DefinitionRules
    """What the owner allows to definitions and parameters of callers."""
    look_up: Callable[[Caller], Caller]
    """Returns a caller as it is now. Raises `Unauthenticated` if its token was removed or has expired."""
    make_listeners: Callable[[PipelineSpec], Sequence[Listener]] = lambda _: ()
    """Returns the listeners of each run of a pipeline."""
    hidden: Mapping[str, str] = field(default_factory=dict)
    """The secrets of all definitions that were read, with their references. No answer has one of them."""
    kept: KeptAnswers[Any] = field(default_factory=lambda: KeptAnswers(2_000))
    """The answers about the states of pipelines, until their next commit."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.overview: Overview[PipelineList] = Overview(read=lambda: self.read_overview(self), clock=self.clock)

    def answer(self, operation: Operation, caller: Caller, ask: Ask, key: str = "") -> Any:
        """Answer a question, or do a change once for its key.

        Raise `Forbidden` if the caller may not ask it. It returns an answer, an encoded answer, or an iterator of
        answers if the operation streams.
        """
        pipeline = getattr(ask, "pipeline", "")
        if caller.right < operation.right:
            raise Forbidden(
                f"{caller.name} has the right to {caller.right.name.lower()}, and {operation.name} needs the right to "
                f"{operation.right.name.lower()}.",
                hint="Ask the owner of the server for a token with that right.",
            )
        if pipeline and not caller.may_see(pipeline):
            raise Forbidden(f"{caller.name} may not see a pipeline of this name.")
        act = partial(operation.act, self, caller, ask)
        if not operation.changes:
            with hide_in_errors(self.hidden):
                return act()

        def change() -> Reply:
            try:
                with act_for(caller.name), hide_in_errors(self.hidden):
                    answer: Reply = act()
                    return answer
            finally:
                self.overview.expire()

        return self.deeds.carry_out(operation, caller, ask, key, change)

    def list_definitions(self, caller: Caller | None = None) -> ScheduleCatalog:
        """Return the definitions of the folder as they are now."""
        with self._lock:
            catalog = ScheduleCatalog.of(self.folder.open())
        if caller is None or caller.pipelines is None:
            return catalog
        scheduled, by_hand = (
            {name: each for name, each in every.items() if caller.may_see(name)}
            for every in (catalog.scheduled, catalog.by_hand)
        )
        return ScheduleCatalog(scheduled=scheduled, by_hand=by_hand)

    def find(self, name: str) -> Definition:
        """Return the definition of a pipeline as the folder has it now. Its secrets may be missing."""
        found = self.list_definitions().definitions.get(name)
        if found is None:
            raise NotFound("There is no pipeline of this name.")
        return found

    def open_pipeline(self, name: str) -> Pipeline:
        """Return a pipeline to look at."""
        return Pipeline.of(self.find(name).pipeline)

    def load_to_run(self, name: str, parameters: Mapping[str, str] | None = None) -> Definition:
        """Return the definition of a pipeline with all its secrets, to carry rows with it.

        Raise `Invalid` for a parameter that a caller may not set.
        """
        path = self.find(name).path
        assert path is not None
        if not parameters:
            return _check_name(self.load(path), name)
        text = path.read_text("utf-8-sig")
        self.rules.check_parameters(parameters, text)
        if self.rules.could_send(text, name, parameters):
            self.rules.check(text, name, parameters)
        return self.load_with(path, name, text, parameters)

    def load_with(self, path: Path, name: str, text: str, parameters: Mapping[str, str]) -> Definition:
        """Return the definition of this name that a file with this text would have, with the caller's parameters.

        Raise `Refusal` for a definition of another pipeline.
        """
        return _check_name(self.load(path, text=text, variables={**self.rules.variables, **parameters}), name)

    def start_task(
        self, operation: str, caller: Caller, ask: Any, work: Callable[[Doing], Any], group: str | None = None
    ) -> Task:
        """Do this work as a task, in the name of the caller. Secrets are hidden in its errors.

        A run has the group of its pipeline, and waits for it.
        """

        def carry(doing: Doing) -> Any:
            with act_for(caller.name), hide_in_errors(self.hidden):
                return work(doing)

        return self.tasks.start(operation, ask.pipeline, caller, getattr(ask, "reason", ""), carry, group)


def _check_name(found: Definition, name: str) -> Definition:
    if found.pipeline.name != name:
        raise Refusal(
            f"The definition is now that of {found.pipeline.name}, and {name} was asked for.",
            hint="Leave out the parameter that changes its name.",
        )
    return found


def to_answer(kind: type[Reply], facts: Mapping[str, Any]) -> Any:
    """Return these facts as an answer. Facts that the answer has no field for are left out."""
    return msgspec.convert(facts, kind, strict=False, from_attributes=True)
