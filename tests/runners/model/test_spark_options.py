"""What a definition sets for a Spark that Wherry starts."""

from __future__ import annotations

import pytest

from runners.model.spec import SparkOptions


def test_a_master_is_a_setting_of_spark() -> None:
    """It may be an option or a part of `conf`."""
    conf = {"spark.master": "yarn"}
    assert SparkOptions(master="yarn").settings == SparkOptions(conf=conf).settings == conf
    assert SparkOptions(master="yarn", conf=conf).settings == conf
    assert SparkOptions(conf={"spark.ui.enabled": "true"}).settings == {"spark.ui.enabled": "true"}


def test_two_masters_are_refused() -> None:
    """Wherry cannot know which of them is right."""
    with pytest.raises(ValueError, match=r"master: 'yarn' and conf: spark\.master: 'local\[2\]' differ; remove one"):
        SparkOptions(master="yarn", conf={"spark.master": "local[2]"})
