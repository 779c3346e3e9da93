"""Durations and sizes as a definition writes them: `10s`, `1h30m`, `256MiB`."""

from __future__ import annotations

import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_BYTES = {
    "b": 1,
    **{unit: 1_000**power for power, unit in enumerate(("kb", "mb", "gb", "tb"), 1)},
    **{unit: 1_024**power for power, unit in enumerate(("kib", "mib", "gib", "tib"), 1)},
}
_LONGEST = 1_000 * 365 * 86_400.0
_LARGEST = 1 << 60

_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*(ms|s|m|h|d|w)\s*", re.ASCII)
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)\s*([A-Za-z]+)", re.ASCII)


def parse_seconds(duration: str) -> float:
    """Return the seconds of a duration such as `10s`, `1h30m` or `30d`. Raise ValueError that shows the format."""
    text = duration.strip()
    parts = list(_DURATION.finditer(text))
    if not parts or "".join(part.group() for part in parts) != text:
        raise ValueError(f"expected a duration such as 500ms, 10s, 5m, 1h30m or 30d, got {duration!r}")
    units = [part.group(2) for part in parts]
    if len(set(units)) < len(units):
        raise ValueError(f"expected each unit once, as in 1h30m, got {duration!r}")
    length = sum(float(part.group(1)) * _SECONDS[part.group(2)] for part in parts)
    if length > _LONGEST:
        raise ValueError(f"expected at most a thousand years, got {duration!r}")
    return length


def check_seconds(option: str, duration: str) -> float:
    """Return the seconds of an option's duration. The message of the ValueError names the option."""
    try:
        return parse_seconds(duration)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from error


def parse_size(text: str) -> int:
    """Return the bytes of a size such as `256MiB`. Raise ValueError that shows the format."""
    found = _SIZE.fullmatch(text.strip())
    unit = _BYTES.get(found.group(2).lower()) if found else None
    if found is None or unit is None:
        raise ValueError(f"expected a size such as 500kB, 64MiB or 1GiB, got {text!r}")
    length = int(float(found.group(1)) * unit) if "." in found.group(1) else int(found.group(1)) * unit
    if length > _LARGEST:
        raise ValueError(f"expected at most {_LARGEST >> 40}TiB, got {text!r}")
    return length
