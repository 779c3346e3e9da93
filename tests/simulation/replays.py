"""A world whose refused rows are replayed after its load, by processes that may die."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from destinations.dlq import DLQ
from destinations.memory import Memory
from origins.batch import Batch
from runners.engine.batch_planner import BatchPlanner, OriginFeed
from runners.model.pipeline_state import is_replay
from runners.running.choice import Letter
from runners.running.replay import sort
from runners.running.work import PastLane
from runners.state.journal import Journal, list_decided
from runners.ways.stage_chain import StageChain
from tests.simulation.world import Process, World

LANE = "dlq/numbers"


class Replaying(Process):
    """A process that replays rows without a decision."""

    world: AgainWorld

    def _source(self) -> BatchPlanner:
        world = self.world
        known = list_decided(self.journal) if world.remembers else ()
        letters = [
            Letter(id=key, origin="numbers", stage="rule", kind="k") for key in world.list_letters() if key not in known
        ]
        world.rng.shuffle(letters)
        line = StageChain.of([], {name: Memory(name=name) for name in world.names})
        found = sort(letters, {"numbers": line}, world.largest)
        lane = PastLane(
            origin="numbers",
            name=LANE,
            lane=LANE,
            start=self.journal.state.get_lane(LANE).offset,
            batches=found.batches.get("numbers", ()),
        )
        feed = lane.make_feed(OriginFeed(origin="numbers", lanes={}, schema="", backlog=lane))
        definition = str(self.definition)
        return BatchPlanner(pipeline="numbers", run="", definition=definition, destinations=world.names, feeds=[feed])


class AgainWorld(World):
    """A world with a second load, which is the refused rows of the first."""

    def __init__(self, rng: random.Random, *, remembers: bool = True, **shape: Any) -> None:
        super().__init__(rng, **shape)
        self.remembers = remembers
        """Whether a replay knows what earlier replays have processed."""
        self.again = False

    def carry_again(self, *, faults: int, times: int = 2) -> None:
        """Run this many replays of all waiting rows, each until one of its processes ends well."""
        self.again, self.follows = True, False
        self.definition += 1
        for _ in range(times):
            self.faults = faults
            self.run()

    def list_letters(self) -> dict[str, int]:
        """Return the rows of the DLQ by their ids."""
        found = {}
        for commit in self.tables[DLQ].commits:
            plan = commit.key.split("/")[0]
            found.update({f"{plan}/{place}": row for place, row in enumerate(commit.rows, 1)})
        return found

    def rows_of(self, batch: Batch) -> list[int]:
        if not is_replay(batch.lane):
            return super().rows_of(batch)
        letters = self.list_letters()
        return [letters[str(part)] for part in batch.span.parts]

    def faults_found(self) -> set[str]:
        """Return what is wrong at the end. Each row must be either delivered or waiting."""
        if not self.again:
            return super().faults_found()
        known = list_decided(Journal(self.ledger))
        waiting = Counter(row for key, row in self.list_letters().items() if key not in known)
        found = set()
        for name in self.names:
            delivered = Counter(self.tables[name].rows)
            found |= {"not replaced"} if delivered[-1] else set()
            for lane in self.lanes:
                for row in range(int(lane) * 1_000 + 1, int(lane) * 1_000 + self.rows + 1):
                    places = delivered[row] + waiting[row]
                    found |= {"lost"} if not places else {"doubled"} if places > 1 else set()
        return found

    def _process(self) -> Process:
        return Replaying(self, self.definition) if self.again else super()._process()

    def _carried(self, process: Process) -> bool:
        return not process.dispatcher.errors if self.again else super()._carried(process)
