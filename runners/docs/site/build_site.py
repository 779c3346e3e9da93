"""Builds the documentation as one folder of pages:  python -m runners.docs.site.build_site [FOLDER]

The pages keep their places in the repository, so that the same links work on the site and beside the code. The
reference is generated. A warning, a broken link, or a page that asks another host for anything fails the build.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from runners.docs.site.reference import write_reference

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent
PAGES = (
    "README.md",
    ".github/CONTRIBUTING.md",
    "[a-z]*/README.md",
    "[a-z]*/docs/*.md",
    "tests/*/README.md",
    "runners/CODES.md",
)
MENU = {
    "Learn": ("runners/docs/tutorial/first-pipeline", "runners/docs/tutorial/*"),
    "Do": ("runners/docs/howto/command-line", "runners/docs/howto/*"),
    "Look up": (
        "reference/definition",
        *(f"reference/{folder}/index" for folder in ("origins", "stages", "destinations", "commands")),
        "Codes <runners/CODES>",
        "reference/*",
        "runners/docs/reference/*",
        "*/docs/*",
    ),
    "Understand": (
        "runners/docs/explanation/guarantees",
        "runners/docs/explanation/*",
        *(f"How {folder} work <{folder}/README>" for folder in ("origins", "stages", "destinations", "runners")),
        "runners/docs/decisions/README",
    ),
    "Take part": ("runners/docs/CHANGELOG", ".github/CONTRIBUTING", "tests/README", "tests/benchmarks/README"),
}
"""The pages below each heading of the menu, in this order; a page that a pattern finds again is not repeated."""
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def build_site(site: Path) -> int:
    """Build the site into a folder, which is replaced; returns an exit code."""
    shutil.rmtree(site, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        source, cache = Path(folder, "pages"), Path(folder, "cache")
        _collect_pages(source)
        write_reference(source / "reference")
        _write_menu(source)
        options = ["-b", "html", "-c", str(HERE), "-W", "--keep-going", "-q", "-j", "auto", "-d", str(cache)]
        words = [sys.executable, "-m", "sphinx", *options, str(source), str(site)]
        if failed := subprocess.run(words, check=False).returncode:
            return failed
    shutil.copy(site / "README.html", site / "index.html")
    problems = sorted({*find_problems(site)})
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    return 1 if problems else 0


def find_problems(site: Path) -> Iterator[str]:
    """Links of a built site that lead nowhere, and everything that a page would load from another host."""
    pages = {page: _PageParts.read(page) for page in site.rglob("*.html")}
    for page, parts in pages.items():
        name = page.relative_to(site)
        yield from (f"{name}: loads {url}" for url in parts.loads if urlsplit(url).netloc)
        for link in (*parts.links, *parts.loads):
            split = urlsplit(link)
            if split.scheme or split.netloc:
                continue
            target = (page.parent / unquote(split.path)).resolve() if split.path else page
            known = pages.get(target)
            if not target.is_file() or (split.fragment and known and unquote(split.fragment) not in known.anchors):
                yield f"{name}: leads nowhere: {link}"
    for sheet in site.rglob("*.css"):
        found = re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]+)", sheet.read_text(encoding="utf-8"))
        yield from (f"{sheet.relative_to(site)}: loads {url}" for url in found)


class _PageParts(HTMLParser):
    """What a page links to, loads, and can be linked by."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = {"", "top"}

    @staticmethod
    def read(page: Path) -> _PageParts:
        parts = _PageParts()
        parts.feed(page.read_text(encoding="utf-8"))
        return parts

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "preload", "preconnect", "icon"):
            self.loads.append(given["href"])
        elif "src" in given:
            self.loads.append(given["src"])


def _collect_pages(source: Path) -> None:
    """Copy the pages to the same places below the folder, with the files to which they link."""
    pages = {page for pattern in PAGES for page in ROOT.glob(pattern)} | {*(ROOT / "runners/docs").rglob("*.md")}
    links = {(page.parent / link).resolve() for page in pages for link in _LINK.findall(page.read_text("utf-8"))}
    for file in {*pages, *(link for link in links if link.is_file())}:
        copy = source / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)


def _write_menu(source: Path) -> None:
    """Put the menu behind the README, which is the first page, and the decisions behind their index."""
    menu = [_make_toctree(pages, f":caption: {caption}\n") for caption, pages in MENU.items()]
    for page, trees in {"README.md": menu, "runners/docs/decisions/README.md": [_make_toctree(["0*"])]}.items():
        with (source / page).open("a", encoding="utf-8") as text:
            text.writelines(trees)


def _make_toctree(pages: Sequence[str], caption: str = "") -> str:
    return f"\n```{{toctree}}\n:hidden:\n:glob:\n{caption}\n" + "\n".join(pages) + "\n```\n"


if __name__ == "__main__":
    sys.exit(build_site(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/site").resolve()))
