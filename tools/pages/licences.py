"""Writes docs/licences.md from requirements-run.lock and the installed packages' metadata. Run: .ci/pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "licences.md"
LOCK = ROOT / "requirements-run.lock"

HEAD = """\
# Licences

What is installed to run migrator: `requirements-run.lock`, which the image installs and nothing else. Made by `.ci/pages`;
a test refuses a package under the GPL or the AGPL, and one without a licence. migrator itself is under Apache-2.0
(`LICENSE`).

"""
FOOT = """
- psycopg is under the LGPL: migrator imports it as it stands, and another build of it can be put in its place.
- Wheels bring C libraries with them, which say nothing here: psycopg-binary libpq and what that needs (OpenSSL, MIT
  Kerberos, OpenLDAP, Cyrus SASL, keyutils: permissive or LGPL), cryptography OpenSSL. Their texts are with those projects.
- The image holds Python (PSF-2.0) and Debian's base; their licences lie under `/usr/share/doc` in it.
- The example shop (`docker/shop/requirements.lock`) and the tools of development (`requirements.lock`) are in neither.
"""
_BY_CLASSIFIER = {
    "MIT License": "MIT",
    "BSD License": "BSD",
    "Apache Software License": "Apache-2.0",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0",
}
_SPELLED = {"Apache License 2.0": "Apache-2.0"}
_ELSEWHERE = {"tzdata": "Apache-2.0"}
"""Of packages that are installed on other systems only, as their own metadata has it."""
_PIN = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?: ; (?P<where>[^\\]*?))? *\\?$")


def pins(lock: Path = LOCK) -> Iterator[tuple[str, str, str]]:
    """Name, version and place ('' for everywhere) of each package of a lock."""
    for line in lock.read_text(encoding="utf-8").splitlines():
        if found := _PIN.match(line):
            yield found["name"], found["version"], found["where"] or ""


def licence(name: str) -> str:
    """The package's licence, as short as possible; '' if it has none."""
    try:
        about = metadata(name)
    except PackageNotFoundError:
        return _ELSEWHERE.get(name, "")
    told, classes, said = (
        about.get_all(name) or [] for name in ("License-Expression", "Classifier", "License")
    )
    if told:
        return str(told[0])
    classes = [text.rpartition(" :: ")[2] for text in classes if text.startswith("License")]
    if classes:
        return " OR ".join(_BY_CLASSIFIER.get(text, text) for text in classes)
    text = "".join(said).strip()
    return _SPELLED.get(text, text.partition("\n")[0])


def page() -> str:
    rows = (f"| {name} | {version} | {licence(name)} | {where} |" for name, version, where in pins())
    return "\n".join(
        [f"{HEAD}| package | version | licence | only where |", "|---|---|---|---|", *rows, FOOT]
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
