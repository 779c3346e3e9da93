"""One word for one idea in everything that people read: a row is refused, and it goes to the DLQ."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

import runners
from runners.command_line.commands import wherry
from runners.definitions.kinds import CONTRACTS, get_our_kinds, read_docs
from tests.messages import list_messages, list_sources
from tests.pages import FOLDERS, GUIDES, PAGES, ROOT

_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`|<!--.*?-->|\]\([^)]*\)", re.DOTALL | re.MULTILINE)
_OTHER_WORD = re.compile(r"\b(?:un)?nack(?:s|ed|ing)?\b|\bdead[- ]letters?\b(?! queue)", re.IGNORECASE)
"""The words of the code for a refused row. `dead letter queue` explains the letters DLQ."""
READ = sorted({*PAGES, *ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).glob("*.md"))})


def list_other_words(text: str) -> list[str]:
    """Return the other words in a text, without its code and its links."""
    return _OTHER_WORD.findall(_CODE.sub(" ", text))


def test_a_page_says_refused() -> None:
    """Names of options, keys and methods are code, and keep their words."""
    for page in READ:
        assert list_other_words(page.read_text(encoding="utf-8")) == [], page


def test_the_help_of_each_command_says_refused() -> None:
    """This is also true of each option."""
    assert [(name, found) for name, text in list_help(wherry) if (found := list_other_words(text))] == []


def list_help(command: click.Command, name: str = "wherry") -> Iterator[tuple[str, str]]:
    """Yield the help of a command, of its options, and of the commands in it."""
    yield name, command.help or ""
    for option in command.params:
        yield f"{name} {option.name}", getattr(option, "help", None) or ""
    if isinstance(command, click.Group):
        for inner, each in command.commands.items():
            yield from list_help(each, f"{name} {inner}")


def test_the_description_of_each_kind_says_refused() -> None:
    """`wherry kinds` and the site show these sentences."""
    kinds = [get_our_kinds().resolve(role, kind) for role in CONTRACTS for kind in get_our_kinds().list_names(role)]
    texts = {f"{kind.__name__}.{name}": text for kind in kinds for name, text in read_docs(kind).items()}
    texts |= {kind.__name__: (kind.__doc__ or "").partition("Example:")[0] for kind in kinds}
    assert {name: found for name, text in texts.items() if (found := list_other_words(text))} == {}


def test_the_description_of_each_exported_name_says_refused() -> None:
    """Editors and the site show them."""
    texts = {}
    for name in runners.__all__:
        exported = getattr(runners, name)
        texts[name] = inspect.getdoc(exported) or ""
        for member, value in vars(exported).items() if inspect.isclass(exported) else ():
            if not member.startswith("_"):
                texts[f"{name}.{member}"] = inspect.getdoc(value) or ""
    assert {name: found for name, text in texts.items() if (found := list_other_words(text))} == {}


def test_messages_say_refused() -> None:
    """Errors, hints, notices, reports and prompts may name the value `nack` of an option."""
    messages = [message for file in list_sources() for message in list_messages(file)]
    assert [each for each in messages if {*list_other_words(each.text)} - {"nack"}] == []


def test_the_glossary_explains_the_names_in_the_code() -> None:
    """Names in JSON and Python keep another word for refused rows."""
    (page,) = [page for page in GUIDES if page.name == "life-of-a-batch.md"]
    text = page.read_text(encoding="utf-8")
    assert "`nacked` in JSON and Python is the number of refused rows" in text
