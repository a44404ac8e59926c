"""`python -m migrator.spark backfill|verify JOB …`: the command on Spark, for spark-submit, which takes a Python file."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from migrator.main import main as command


def main(words: Sequence[str]) -> None:
    """Run `migrator` with these words and `--spark submit`, or with their own `--spark`.

    Ends with SystemExit, unless the exit code is 0: some services treat any SystemExit as a failure.
    """
    sys.argv = ["migrator", *words, *([] if "--spark" in words else ["--spark", "submit"])]
    try:
        command()
    except SystemExit as ended:
        if ended.code:
            raise


if __name__ == "__main__":
    main(sys.argv[1:])
