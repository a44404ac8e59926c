"""Known vulnerabilities of the installed packages, as pip-audit finds them on the index. Run: make lint.

Without the index it prints that nothing is known, and succeeds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parent.parent / "requirements-run.lock"
LONGEST_S = 300


def audited(lock: Path) -> tuple[str, str]:
    """Output of pip-audit, and the last line of its complaint."""
    words = ["--disable-pip", "--require-hashes", "--requirement", str(lock), "--format", "json"]
    command = [sys.executable, "-m", "pip_audit", "--progress-spinner", "off", *words]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        return "", f"no answer within {LONGEST_S} s"
    return ended.stdout, (ended.stderr.strip().splitlines() or [""])[-1]


def judged(printed: str, complaint: str) -> tuple[bool, list[str]]:
    """Whether nothing is known against the packages, and lines on the lookup."""
    try:
        packages: list[dict[str, Any]] = json.loads(printed)["dependencies"]
    except (ValueError, KeyError):
        return True, [f"audit of packages: skipped, the index cannot be asked ({complaint})"]
    asked = [package for package in packages if "skip_reason" not in package]
    faults = [
        f"{package['name']} {package['version']}: {fault['id']}, mended in {', '.join(fault['fix_versions']) or 'none yet'}"
        for package in asked
        for fault in package["vulns"]
    ]
    if len(asked) < len(packages):
        unknown = f"{len(packages) - len(asked)} of {len(packages)} packages"
        return not faults, [
            *faults,
            f"audit of packages: skipped for {unknown}, which this index tells nothing of",
        ]
    return not faults, faults


def main() -> int:
    is_clean, lines = judged(*audited(LOCK))
    print("\n".join(lines), end="\n" if lines else "")
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
