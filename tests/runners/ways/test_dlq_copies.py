"""The DLQ that a run has open, and its copies."""

from __future__ import annotations

from unittest.mock import Mock, create_autospec

import pytest

from destinations.conformance import make_label
from destinations.destination import Identity, OpenDestination, Unsure
from origins.batch_rows import TableRows
from runners.ways.dlq_copies import DlqCopy, OpenDlq


def test_an_assumption_about_a_copy_applies_only_to_earlier_runs() -> None:
    """A batch that this run tried to copy is looked for at the current place of the copy."""
    kept, copy = create_autospec(OpenDestination), create_autospec(OpenDestination)
    spark, label = Mock(), make_label()
    old, now = (Identity(place="topic", id=each) for each in ("old", "now"))
    before = Identity(place="dlq", id="dlq", copies={"topic": old})
    kept.find.return_value, copy.ensure_place.return_value = None, now
    copy.find.side_effect = Unsure("The topic was replaced.", hint="Ask.")
    copy.write.side_effect = ConnectionError("away")
    copied = OpenDlq(kept=kept, copies=[DlqCopy(name="topic", opened=copy)], assume="delivered")
    assert copied.find(spark, label, before) is None
    copy.find.assert_called_with(spark, label, old)
    other = make_label(number=2)
    with pytest.raises(ConnectionError):
        copied.write(spark, create_autospec(TableRows), [other])
    with pytest.raises(Unsure):
        copied.find(spark, other, before)
    copy.find.assert_called_with(spark, other, now)
