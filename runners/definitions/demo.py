"""A first pipeline to look at: real-looking orders as files, some of them bad, and a definition that carries them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

from runners.errors import Refusal

DEFINITION = """\
name: orders
origin:
  files:
    path: "landing/orders/*.json"
    format: json
    schema: "id long, email string, amount string, country string, at timestamp"
    max_files: 1                                  # one file a batch, so that there is something to see
stages:
  - cast: {amount: "decimal(10,2)"}               # refuses what is no amount
  - require: {positive_amount: "amount > 0"}      # refuses what is not positive
  - filter: "email is not null"                   # leaves out orders without an email
  - with_columns: {email: "lower(email)", day: "date(at)"}
destinations:
  - delta: {path: tables/orders}
dlq: {window: 1000, threshold: 100}               # stops when 100 of the last 1000 rows were refused
"""

COUNTRIES = ("AT", "BR", "CH", "DE", "FR", "IN", "JP", "NG", "PL", "US")
NAMES = ("Ada", "Björn", "Chidi", "Dörte", "Eun-ji", "Fatima", "Grace", "Hans", "Inês", "Jürgen", "Kofi", "Łucja")


def make(directory: Path, *, files: int = 20, rows: int = 1_000, seed: int = 7) -> Path:
    """Write the orders and the definition; returns the definition's path. The same for the same seed.

    Raises `Refusal` where something else lies already.
    """
    definition = directory / "orders.yaml"
    if definition.exists():
        if definition.read_text(encoding="utf-8") != DEFINITION:
            raise Refusal(
                f"{definition} is there already, and it is not the demo's.",
                hint="Name another directory:  wherry demo DIRECTORY",
            )
        return definition
    landing = directory / "landing" / "orders"
    try:
        landing.mkdir(parents=True, exist_ok=True)
        dice = random.Random(seed)  # noqa: S311  (orders, not secrets)
        for number in range(files):
            lines = _lines(dice, range(number * rows + 1, (number + 1) * rows + 1))
            (landing / f"orders-{number + 1:04}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
        definition.write_text(DEFINITION, encoding="utf-8")
    except OSError as error:
        raise Refusal(
            f"The demo cannot be written to {directory} ({error.strerror}).",
            hint="Name a directory that can be written:  wherry demo DIRECTORY",
        ) from error
    return definition


def _lines(dice: random.Random, ids: range) -> Iterator[str]:
    """Orders as lines of JSON: about 2 % of them bad, in five ways."""
    began = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for number in ids:
        name, country = dice.choice(NAMES), dice.choice(COUNTRIES)
        order = {
            "id": number,
            "email": f"{name}.{number}@example.{country.lower()}",
            "amount": f"{dice.lognormvariate(3.5, 1):.2f}",
            "country": country,
            "at": (began + timedelta(seconds=37 * number)).isoformat(),
        }
        chance = dice.random()
        if chance < 0.004:
            order["amount"] = dice.choice(["sieben", "12,50", "n/a", "1e99"])
        elif chance < 0.007:
            order["amount"] = f"-{order['amount']}"
        elif chance < 0.020:
            order["email"] = None
        line = json.dumps(order, ensure_ascii=False)
        yield line if chance < 0.999 else line[: len(line) // 2]
