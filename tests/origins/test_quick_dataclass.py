"""Wherry's `dataclass` behaves like the one of the standard library."""

import builtins
import copy
import dataclasses
import pickle
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from origins.quick_dataclass import _make_dataclass, dataclass

KINDS: list[dict[str, bool]] = [
    {"frozen": True},
    {"frozen": True, "kw_only": True},
    {"kw_only": True},
    {},
    {"eq": False},
    {"frozen": True, "eq": False},
    {"order": True},
    {"frozen": True, "order": True},
]
"""The options of a dataclass that the project and its users write."""


def make_class(decorate: Callable[..., Any], options: Mapping[str, bool]) -> Any:
    """Return a class with a field of each kind."""

    class Sample:
        first: int
        second: str = "b"
        third: list[int] = field(default_factory=list)
        hidden: float = field(default=0.5, repr=False)
        unlike: object = field(default=None, compare=False)
        made: dict[str, int] = field(init=False, default_factory=dict, hash=False, compare=False)
        word: str = field(default="w", kw_only=True)
        total = 3

        def __post_init__(self) -> None:
            object.__setattr__(self, "twice", self.first * 2)

    return decorate(**options)(Sample)


@dataclass(frozen=True)
class QuickKept:
    """A class that pickle finds by its name."""

    key: str
    number: int = 1


@pytest.fixture(params=KINDS, ids=str)
def both(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """The same class, made by the standard library and by Wherry."""
    return make_class(dataclasses.dataclass, request.param), make_class(_make_dataclass, request.param)


def find_outcome(call: Callable[[], object]) -> object:
    """Return the result of a call, or its error."""
    try:
        return call()
    except (TypeError, AttributeError) as error:
        return type(error), str(error)


def test_an_instance_has_the_same_values(both: tuple[Any, Any]) -> None:
    """Defaults, factories, keyword-only fields and `__post_init__` work equally."""
    standard, quick = (cls(first=7, word="x") for cls in both)
    assert vars(standard) == vars(quick)
    assert standard.total == quick.total
    assert quick.third is not both[1](first=7).third


def test_an_instance_is_shown_the_same(both: tuple[Any, Any]) -> None:
    """Fields with `repr=False` are left out."""
    standard, quick = (repr(cls(first=7, third=[1])) for cls in both)
    assert standard == quick
    assert "hidden" not in quick


def test_a_wrong_call_has_the_same_error(both: tuple[Any, Any]) -> None:
    """A missing value, an unknown name and an extra value are refused in the same words."""
    for call in (lambda cls: cls(), lambda cls: cls(first=1, fourth=2), lambda cls: cls(*range(9))):
        standard, quick = (find_outcome(lambda cls=cls, call=call: call(cls)) for cls in both)  # type: ignore[misc]
        assert standard == quick


def test_values_decide_what_is_equal(both: tuple[Any, Any]) -> None:
    """Fields with `compare=False` do not count, and another class is never equal."""
    for other in ({"first": 1}, {"first": 2}, {"first": 1, "unlike": 3}, {"first": 1, "third": [2]}):
        standard, quick = (cls(first=1) == cls(**other) for cls in both)
        assert standard == quick
    assert both[0](first=1) != both[1](first=1)


def test_the_same_classes_have_a_hash(both: tuple[Any, Any]) -> None:
    """A class that can change and compares values has no hash."""
    standard, quick = (cls.__hash__ for cls in both)
    assert (standard is None, standard is object.__hash__) == (quick is None, quick is object.__hash__)


def test_equal_instances_have_one_hash() -> None:
    """Two instances of a frozen class are one key."""
    assert len({QuickKept("a"), QuickKept("a"), QuickKept("b")}) == 2


def test_a_frozen_instance_cannot_change(both: tuple[Any, Any]) -> None:
    """Assignment and deletion are refused in the same words."""
    for change in (lambda each: setattr(each, "first", 2), lambda each: delattr(each, "first")):
        standard, quick = (find_outcome(lambda cls=cls, change=change: change(cls(first=1))) for cls in both)  # type: ignore[misc]
        assert standard == quick


def test_the_functions_of_dataclasses_work(both: tuple[Any, Any]) -> None:
    """`replace`, `asdict` and `fields` give the same."""
    standard, quick = (dataclasses.replace(cls(first=1), second="c") for cls in both)
    assert dataclasses.asdict(standard) == dataclasses.asdict(quick)
    assert [each.name for each in dataclasses.fields(standard)] == [each.name for each in dataclasses.fields(quick)]
    assert vars(both[0])["__match_args__"] == vars(both[1])["__match_args__"]


def test_a_copy_is_equal() -> None:
    """`copy` and `pickle` keep the values of a frozen class."""
    each = QuickKept("a", 2)
    assert copy.deepcopy(each) == copy.copy(each) == pickle.loads(pickle.dumps(each)) == each  # noqa: S301


def test_a_frozen_class_of_the_standard_library_may_inherit() -> None:
    """An origin or a stage of another package is such a class."""
    base = make_class(_make_dataclass, {"frozen": True})

    @dataclasses.dataclass(frozen=True)
    class Heir(base):  # type: ignore[misc,valid-type]
        more: int = 4

    assert (Heir(1).more, Heir(1).first) == (4, 1)
    with pytest.raises(FrozenInstanceError):
        Heir(1).more = 5  # type: ignore[misc]


def test_a_field_may_have_any_name() -> None:
    """No name in the source of `__init__` hides a field."""

    @dataclass(frozen=True)
    class Named:
        values: int
        missing: int
        default_values: int = 3
        MISSING: int = 4
        field: int = 5

    assert vars(Named(1, 2)) == {"values": 1, "missing": 2, "default_values": 3, "MISSING": 4, "field": 5}


def test_an_instance_that_contains_itself_is_shown() -> None:
    """The inner occurrence is shown with dots."""
    cls = make_class(_make_dataclass, {})
    each = cls(first=1)
    each.third.append(each)
    assert "third=[...]" in repr(each)


def test_only_the_init_of_a_class_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standard library compiles all methods of a class, which takes most of its time."""
    texts: list[str] = []
    execute = exec

    def note(text: str, known: dict[str, Any], made: dict[str, Any]) -> None:
        texts.append(text)
        execute(text, known, made)

    def count_functions(decorate: Callable[..., Any]) -> Counter[str]:
        texts.clear()
        make_class(decorate, {"frozen": True})
        return Counter(re.findall(r"def (__[a-z]+__)\(", "\n".join(texts)))

    monkeypatch.setattr(builtins, "exec", note)
    assert count_functions(_make_dataclass) == {"__init__": 1}
    assert count_functions(dataclasses.dataclass).total() > 4
