"""What is done when files are not as their schema says: a policy for each kind of change."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields

from origins.errors import OriginError
from origins.protection import Protection

RESCUED = "_rescued"
"""The column that keeps what did not fit, as one JSON object."""
STOPS = "WHERRY_SCHEMA_STOP "
"""How the error begins that a query raises at a line for which the policy is `stop`."""
_MAY: Mapping[str, tuple[str, ...]] = {
    "missing": ("stop", "evolve", "nack"),
    "extra": ("stop", "evolve", "nack", "rescue", "ignore"),
    "wider": ("stop", "evolve", "nack", "rescue"),
    "other": ("stop", "nack", "rescue"),
    "corrupt": ("stop", "nack", "rescue"),
    "doubled": ("nack", "keep_last"),
}


class SchemaChanged(OriginError):
    """Files are not as their schema says, and the policy for that is `stop`."""

    code = "SCHEMA"


def ways_on(kinds: Collection[str]) -> str:
    """What may be done about such changes, at the end of a sentence."""
    let = ", ".join(f"{kind}: {'evolve' if 'evolve' in _MAY[kind] else 'rescue'}" for kind in kinds)
    refuse = ", ".join(f"{kind}: nack" for kind in kinds)
    return f"say in the definition: `on_change: {{{let}}}` lets it come, `on_change: {{{refuse}}}` refuses its rows"


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The policy for each kind of change."""

    missing: str = "stop"
    """A column of the schema that a file, or a line of JSON, has not."""
    extra: str = "stop"
    """A column that the schema has not."""
    wider: str = "nack"
    """A number that is too large or too fine for its column, and that a wider type of its kind can hold."""
    other: str = "nack"
    """A value of another type, or under a name that differs from its column's in the case of letters."""
    corrupt: str = "nack"
    """A line that is none of the format."""
    doubled: str = "nack"
    """A key of JSON that stands twice in one object. With `keep_last` its last value is read, as Spark does."""

    @staticmethod
    def of(kind: str, told: Mapping[str, str], *, given: bool) -> Changes:
        """What a definition says, completed. A schema that is `given` names the columns that are wanted; one that
        grows, or that is told from all files of parquet, has columns that some of them have not."""
        defaults = {"extra": "ignore"} if given else {}
        if kind == "json" or told.get("extra") == "evolve" or (kind == "parquet" and not given):
            defaults["missing"] = "evolve"
        if kind == "parquet":
            defaults |= {"wider": "stop", "other": "stop", "corrupt": "stop"}
        return Changes(**{**defaults, **told})

    @property
    def evolves(self) -> bool:
        """Whether the schema grows with the files."""
        return "evolve" in (self.extra, self.wider)

    @property
    def rescues(self) -> bool:
        """Whether rows have the column `RESCUED`."""
        return "rescue" in (self.extra, self.wider, self.other, self.corrupt)

    def having(self, policy: str) -> Iterator[str]:
        """The kinds of change that have this policy."""
        return (each.name for each in fields(self) if getattr(self, each.name) == policy)


def check_changes(kind: str, told: Mapping[str, str], options: Mapping[str, object]) -> None:
    """Raises ValueError for a kind of change or a policy that there is not."""
    for change, policy in told.items():
        if change not in _MAY:
            raise ValueError(f"on_change: expected {', '.join(_MAY)}, got {change!r}")
        if policy not in _MAY[change]:
            raise ValueError(f"on_change.{change}: expected {', '.join(_MAY[change])}, got {policy!r}")
        if kind == "text":
            raise ValueError(f"on_change: text has one column and no types, so there is no {change} to decide about")
        if kind == "parquet" and change == "corrupt" and policy != "stop":
            raise ValueError("on_change.corrupt: expected stop, since a broken file of parquet has no lines to refuse")
        if kind != "json" and change == "doubled":
            raise ValueError(f"on_change.doubled: expected format: json beside it, got {kind}")
    given = {name.lower() for name, value in options.items() if str(value).lower() == "true"}
    odd = sorted(given & {"allowcomments", "allowsinglequotes"}) if "multiline" in given else []
    if odd and "rescue" in told.values():
        raise ValueError(f"on_change: expected no rescue beside multiLine and {odd[0]}, or objects are not told apart")


def stopped(error: BaseException, protection: Protection) -> SchemaChanged | None:
    """What a query raised at a line for which the policy is `stop`; None if it was something else."""
    _, found, said = str(error).partition(STOPS)
    if not found:
        return None
    return SchemaChanged(
        protection.message(said.partition(STOPS.strip())[0].strip()),
        hint="Nothing of its batch was delivered. Correct the file, or say what is to be done with on_change.",
    )
