"""A fix for refused rows is previewed, applied once, and never mixed with another fix."""

from __future__ import annotations

import json

import pytest

from runners.command_line import cli
from runners.model.errors import Refusal, StageError
from runners.model.events import BatchPlanned, Event
from runners.running.choice import Choice
from runners.running.fix import Fix
from runners.running.replay import Replay
from tests.scenarios.conftest import ORDERS, Place, list_files, make_order

pytestmark = pytest.mark.spark

TWO = "  - delta: {path: tables/orders}\n", "  - delta: {path: tables/orders}\n  - delta: {path: tables/b}\n"
BAD = [
    make_order(1),
    make_order(2, amount="2,50"),
    make_order(3, amount="-3"),
    make_order(4, amount="4,50"),
    make_order(5, amount="x"),
]
COMMAS = Fix(columns={"amount": "replace(amount, ',', '.')"})


def list_waiting(place: Place) -> list[tuple[int, int | None]]:
    """Return the orders in the DLQ that wait, each with the order of the entry that it replays."""
    rows = place.load().refused.list()
    orders = {row["id"]: row["original"]["id"] for row in rows}
    return sorted((orders[row["id"]], orders.get(row["replays"])) for row in rows if not row["replayed"])


@pytest.mark.promise("CD-30")
@pytest.mark.connect
def test_rows_are_previewed_with_a_fix_and_then_delivered_once(place: Place) -> None:
    """The preview shows the result of the replay, writes nothing, and masks protected values."""
    place.land("1.json", BAD)
    place.load(ORDERS.replace(*TWO) + "protect: [email]\n").run()
    pipeline, replay = place.load(), Replay(fix=COMMAS, reason="decimal commas")
    before = list_files(place.folder)
    preview = pipeline.refused.preview_replay(replay)
    assert list_files(place.folder) == before
    assert (preview.read, preview.passing, preview.filtered, preview.refused) == (4, 2, 0, 2)
    assert dict(preview.destinations) == {"orders": 2, "b": 2}
    causes = {(cause.code, cause.stage): cause.rows for cause in preview.causes.found}
    assert causes == {("CAST", "cast"): 1, ("positive_amount", "require"): 1}
    shown = {json.dumps([row.row.before["amount"], row.row.after["amount"]]) for row in preview.rows}
    assert shown == {'["2,50", "2.50"]', '["4,50", "4.50"]', '["-3", "-3"]', '["x", "x"]'}
    assert "@X.COM" not in json.dumps(preview.json())
    report = pipeline.replay(replay)
    assert (report.status, report.read, report.nacked, report.balanced) == ("succeeded", 4, 2, True)
    assert (place.ids("tables/orders"), place.ids("tables/b")) == ([1, 2, 4], [1, 2, 4])
    assert list_waiting(place) == [(3, 3), (5, 5)]
    assert pipeline.audit().balanced


def test_a_select_is_applied_before_the_stage_that_refused(place: Place) -> None:
    """The SELECT sees the columns at that stage, and columns that it omits stay the same. A row for which it does not
    give exactly one row is refused."""
    place.land("1.json", BAD)
    place.load(ORDERS).run()
    fix = Fix(sql="SELECT abs(amount) AS amount FROM rows", start="refused")
    there = Replay(choice=Choice(stage="require"), fix=fix, reason="a sign too many")
    preview = place.load().refused.preview_replay(there)
    assert [(row.row.before["amount"], row.row.after["amount"]) for row in preview.rows] == [(-3.0, 3.0)]
    place.load().replay(there)
    (three,) = [row for row in place.rows("tables/orders") if row["id"] == 3]
    assert (str(three["amount"]), three["email"]) == ("3.00", "a3@x.com")
    some = "with twice as (select 2 as id union all select 2) SELECT replace(amount, ',', '.') AS amount"
    some += " FROM rows join (select 4 as id union all select * from twice) as other using (id);"
    preview = place.load().refused.preview_replay(Replay(fix=Fix(sql=some), reason="by a table"))
    assert {dict(row.row.row)["id"]: (row.row.outcome, row.row.code, row.row.message) for row in preview.rows} == {
        2: ("rejected", "FIX", "the SELECT gives 2 rows for it; expected 1"),
        4: ("wanted", None, None),
        5: ("rejected", "FIX", "the SELECT gives 0 rows for it; expected 1"),
    }
    with pytest.raises(StageError, match=r"stage 'fix'.*no column 'amont'"):
        place.load().refused.preview_replay(Replay(fix=Fix(columns={"amont": "1"}), reason="x"))


NO_PLACES = "must read `rows` itself and give one row for each"


@pytest.mark.connect
def test_the_error_of_a_wrong_select_names_its_cause(place: Place) -> None:
    """A mistyped column or a syntax error is not taken for a SELECT that loses rows."""
    place.land("1.json", BAD)
    place.load(ORDERS).run()
    for select, problem in (
        ("upper(amont) AS amount FROM rows", "`amont` cannot be resolved"),
        ("replace(amount AS amount FROM rows", "Syntax error at or near 'AS'"),
        ("amount FROM row", "view `row` cannot be found"),
        ("*, upper(amount) AS Amount FROM rows", "gives amount twice; name only the columns that change, without [*]"),
        ("amount FROM (SELECT amount FROM rows)", NO_PLACES),
        ("amount, count(*) AS n FROM rows GROUP BY amount", NO_PLACES),
        ("max(amount) AS amount FROM rows", NO_PLACES),
        ("DISTINCT amount FROM rows", NO_PLACES),
        ("amount FROM rows UNION ALL SELECT amount FROM rows", NO_PLACES),
    ):
        with pytest.raises(StageError, match=f"stage 'fix'.*{problem}"):
            place.load().refused.preview_replay(Replay(fix=Fix(sql=f"SELECT {select}"), reason="x"))


@pytest.mark.promise("CD-30")
def test_a_resumed_replay_keeps_the_function_that_it_began_with(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """This holds although the file is changed and then removed. The commands are typed as a user would type them."""
    place.land("1.json", [make_order(1), *(make_order(n, amount=f"{n},50") for n in range(2, 8))])
    place.load(ORDERS).run()
    file = place.folder / "fix.py"
    file.write_text(FUNCTION.format(put="."))

    def listen(event: Event) -> None:
        if isinstance(event, BatchPlanned) and event.batch.number == 2:
            place.load().stop("the night begins")

    pipeline = place.load(run__batch__rows="2")
    cut = pipeline.replay(Replay(fix=Fix.read(file), reason="decimal commas"), listeners=[listen])
    assert (cut.status, cut.read) == ("stopped", 4)
    file.write_text(FUNCTION.format(put="00."))
    with pytest.raises(Refusal, match="left 2 rows without that fix"):
        place.load().replay(Replay(fix=Fix.read(file), reason="another"))
    file.unlink()
    typed = ["dlq", "replay", str(place.folder / "pipeline.yaml")]
    assert cli.execute([*typed, "--set", "amount=1", "--reason", "x", "--yes"]) == 2
    assert "fix.py was cut short" in capsys.readouterr().err
    assert cli.execute([*typed, "--resume", "--yes"]) == 0
    shown = capsys.readouterr()
    assert "Of 2 rows 2 would pass." in shown.err
    assert '"6,50"  "6.50"  goes to orders' in shown.err
    assert sorted(str(row["amount"]) for row in place.rows("tables/orders")) == [f"{n}.50" for n in range(1, 8)]
    assert cli.execute([*typed, "--resume", "--yes"]) == 2


FUNCTION = """
POINT = "{put}"

def mend(rows: list[dict]) -> list[dict]:
    return [{{**row, "amount": _put(row["amount"])}} for row in rows]

def _put(amount):
    return amount.replace(",", POINT)
"""
