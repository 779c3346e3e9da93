"""What only some destinations can do is in classes beside the contract, and no method is ignored silently."""

from __future__ import annotations

import pytest

from destinations.capabilities import DestinationCapability, NeedsMaintenance, OpenCapability, StopsWriters
from destinations.destination import Destination, OpenDestination, StatelessDestination

KINDS: list[tuple[type, type]] = [
    *((Destination, each) for each in DestinationCapability.__subclasses__()),
    *((OpenDestination, each) for each in OpenCapability.__subclasses__()),
]
MEMBERS = [(side, each, name) for side, each in KINDS for name in vars(each) if not name.startswith("_")]


def do_nothing(*_: object) -> None:
    """Stand for any method."""


@pytest.mark.parametrize(("side", "capability", "name"), MEMBERS, ids=lambda each: getattr(each, "__name__", each))
def test_a_member_needs_its_capability(side: type, capability: type, name: str) -> None:
    """A destination that was written when the contract had all methods learns which class to inherit."""
    said = rf"Queue has `{name}`, so it must inherit destinations.capabilities.{capability.__name__}"
    for contract in (side, StatelessDestination):
        with pytest.raises(TypeError, match=said):
            type("Queue", (contract,), {name: do_nothing})
        assert issubclass(type("Queue", (contract, capability), {name: do_nothing}), capability)


@pytest.mark.parametrize(("bases", "members"), [((StopsWriters,), {}), ((), {"needs_maintenance": True})])
def test_a_destination_does_not_have_what_belongs_to_the_open_one(
    bases: tuple[type, ...], members: dict[str, object]
) -> None:
    """Wherry would ask only what `open` returns. A stateless destination is both."""
    with pytest.raises(TypeError, match="Queue has members that belong to what its `open` returns"):
        type("Queue", (Destination, *bases), members)
    assert issubclass(type("Queue", (StatelessDestination, *(bases or (NeedsMaintenance,))), members), Destination)


def test_an_option_may_have_the_name_of_a_member_of_the_open_one() -> None:
    """Wherry never looks for that member there."""
    assert issubclass(type("Queue", (Destination,), {"confirm": False}), Destination)


@pytest.mark.parametrize(
    ("contract", "abstract", "most"),
    [(Destination, {"place", "open"}, 16), (OpenDestination, {"ensure_place", "write"}, 5)],
)
def test_the_contract_itself_is_small(contract: type, abstract: set[str], most: int) -> None:
    """An author fills four members. All others have an answer already."""
    members = {name for each in contract.__mro__[:-1] for name in vars(each) if not name.startswith("_")}
    assert contract.__abstractmethods__ == abstract  # type: ignore[attr-defined]  # each is an ABC
    assert len(members - set(getattr(contract, "__dataclass_fields__", {}))) <= most
