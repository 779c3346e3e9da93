"""What becomes of the sample rows. Run it with `python test_pipeline.py` or with pytest; it writes into a folder of
its own, and your tables are not touched."""

from __future__ import annotations

import tempfile
from pathlib import Path

from runners import Pipeline

HERE = Path(__file__).parent


def test_the_sample_is_carried_but_for_its_bad_rows() -> None:
    """Of ten rows three are refused, and one has no email."""
    with tempfile.TemporaryDirectory() as place:
        changed = {
            "origin.files.path": "landing/sample.csv",
            "destinations[0].delta.path": f"{place}/orders",
            "state": f"{place}/state",
        }
        pipeline = Pipeline.load(HERE / "orders.yaml", overrides=changed)
        report = pipeline.run()
        refused = [nack["code"] for nack in pipeline.dead_letters()]
    assert report.balanced is True
    assert (report.read, report.filtered, report.nacked) == (10, 1, 3)
    assert report.delivered == {"orders": 6}
    assert refused == ["CAST", "positive_amount", "PARSE"]


if __name__ == "__main__":
    test_the_sample_is_carried_but_for_its_bad_rows()
    print("The sample passes, except for its bad rows.")
