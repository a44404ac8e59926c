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

migrator is under Apache-2.0 (`LICENSE`). Its image installs only the packages of `requirements-run.lock`. Tests refuse
packages under the GPL or the AGPL, or without a licence. `.ci/pages` writes this page.

"""
FOOT = """
- psycopg is under the LGPL: migrator imports it unchanged, and it can be replaced by another build.
- Wheels contain C libraries with licences of their own: psycopg-binary libpq and its libraries (OpenSSL, MIT
  Kerberos, OpenLDAP, Cyrus SASL, keyutils: permissive or LGPL), cryptography OpenSSL.
- The image contains Python (PSF-2.0) and Debian's base, with licences in `/usr/share/doc`.
- Not listed: the example shop (`docker/shop/requirements.lock`) and development tools (`requirements.lock`).
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
    rows = (
        f"| {name}{where and f', if `{where}`'} | {version} | {licence(name)} |"
        for name, version, where in pins()
    )
    return "\n".join([f"{HEAD}| package | version | licence |", "|---|---|---|", *rows, FOOT])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
