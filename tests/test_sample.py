"""Only a sample of the slow tests is run."""

from __future__ import annotations

import pytest

from tests.sample import leave_out

CONFTEST = "from tests.sample import *"
MANY = """
import pytest

@pytest.mark.long
@pytest.mark.parametrize("moment", range(6))
def test_killed(moment): pass

@pytest.mark.parametrize("number", range(10))
def test_quick(number): pass
"""


def test_a_seed_chooses_the_same_tests_again() -> None:
    """Some seed chooses each test."""
    assert leave_out("abcdef", 2, 7) == leave_out("abcdef", 2, 7)
    assert len(leave_out("abcdef", 2, 7)) == 4
    assert set.intersection(*(set(leave_out("abcdef", 2, seed)) for seed in range(50))) == set()


@pytest.mark.parametrize(
    ("options", "passed"),
    [
        (["--long", "2", "--seed", "7"], 2 + 10),
        (["--long", "all"], 6 + 10),
        (["--long", "1", "--share", "20"], 1 + 2),
        (["test_many.py"], 6 + 10),
    ],
)
def test_a_sample_is_run_and_the_rest_is_deselected(pytester: pytest.Pytester, options: list[str], passed: int) -> None:
    """The file has six long tests and ten others. If the file is named, all of its tests are run."""
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_many=MANY)
    result = pytester.runpytest(*options, "-W", "ignore")
    result.assert_outcomes(passed=passed, deselected=16 - passed)


def test_the_seed_is_printed(pytester: pytest.Pytester) -> None:
    """The header shows the seed whether it was given or not."""
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_many=MANY)
    pytester.runpytest("--seed", "7", "-W", "ignore").stdout.fnmatch_lines(["*chosen by --seed 7"])
    pytester.runpytest("-W", "ignore").stdout.re_match_lines([r".*chosen by --seed \d+"])


def test_an_invalid_number_is_refused(pytester: pytest.Pytester) -> None:
    """The message explains which values are valid."""
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_many=MANY)
    pytester.runpytest("--long", "few", "-W", "ignore").stderr.fnmatch_lines(["*--long few: a number, or all"])


def test_all_processes_of_a_run_choose_the_same_tests(pytester: pytest.Pytester) -> None:
    """With `-n 2`, the processes must agree on the tests to run."""
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_many=MANY)
    result = pytester.runpytest("-n", "2", "-W", "ignore")
    result.assert_outcomes(passed=1 + 10)
    result.stdout.re_match_lines([r".*chosen by --seed \d+"])


def test_processes_side_by_side_begin_with_the_slow_files(pytester: pytest.Pytester) -> None:
    """A single process keeps the order of the files."""
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(
        test_a="def test_quick(): pass",
        test_b="import pytest\n@pytest.mark.spark\ndef test_spark(): pass",
        test_c="import pytest\n@pytest.mark.long\ndef test_long(): pass",
    )
    words = ["-v", "-W", "ignore", "--no-loadscope-reorder"]
    pytester.runpytest(*words).stdout.re_match_lines([".*test_quick.*", ".*test_spark.*", ".*test_long.*"])
    alone = pytester.runpytest(*words, "-n", "1", "--dist", "loadfile")
    alone.stdout.re_match_lines([".*PASSED.*test_long.*", ".*PASSED.*test_spark.*", ".*PASSED.*test_quick.*"])


def test_a_test_can_use_the_seed_of_the_sample(pytester: pytest.Pytester) -> None:
    """The fixture `seed` returns the number given by `--seed`."""
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_dice="def test_dice(seed): assert seed == 4711")
    pytester.runpytest("--seed", "4711", "-W", "ignore").assert_outcomes(passed=1)
