"""What only some origins can do is in classes beside the contract, and no method of an origin is ignored silently."""

from __future__ import annotations

import pytest

from origins.capabilities import Capability, KeepsParts, ReactsToCommits
from origins.files import Files
from origins.origin import Origin

MEMBERS = [(each, name) for each in Capability.__subclasses__() for name in vars(each) if not name.startswith("_")]


def do_nothing(*_: object) -> None:
    """Stand for any method."""


@pytest.mark.parametrize(("capability", "name"), MEMBERS, ids=lambda each: getattr(each, "__name__", each))
def test_a_member_needs_its_capability(capability: type[Capability], name: str) -> None:
    """An origin that was written when the contract had all methods learns which class to inherit."""
    with pytest.raises(
        TypeError, match=rf"Queue has `{name}`, so it must inherit origins.capabilities.{capability.__name__}"
    ):
        type("Queue", (Origin,), {name: do_nothing})
    assert issubclass(type("Queue", (Origin, capability), {name: do_nothing}), capability)


def test_an_origin_that_keeps_parts_by_a_flag_is_refused() -> None:
    """Wherry would else not give it the parts, and it would read them again."""
    with pytest.raises(TypeError, match="Queue has `keeps_parts`"):
        type("Queue", (Origin,), {"keeps_parts": True})
    assert issubclass(Files, KeepsParts)


def test_a_member_that_comes_from_another_base_class_is_found() -> None:
    """Python looks for a method in all bases, and so does Wherry."""
    base = type("Base", (), {"committed": do_nothing})
    with pytest.raises(TypeError, match="Queue has `committed`"):
        type("Queue", (base, Origin), {})


def test_a_subclass_inherits_the_capabilities_of_an_origin() -> None:
    """It may override their members."""
    assert issubclass(type("Mine", (Files,), {"committed": do_nothing}), ReactsToCommits)


def test_the_contract_itself_is_small() -> None:
    """An author reads at most 12 members, three of which are abstract."""
    members = [name for each in Origin.__mro__[:-1] for name in vars(each) if not name.startswith("_")]
    options = set(Origin.__dataclass_fields__)
    assert Origin.__abstractmethods__ == {"survey", "columns", "fetch"}
    assert len({*members} - options) <= 12
