"""`python -m migrator.spark backfill|verify JOB …`: the command on Spark, for spark-submit, which takes a file of Python."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from migrator.main import main as command


def main(words: Sequence[str]) -> None:
    """What `migrator` does with these words and `--spark submit`, or with their own `--spark`.

    Ends with SystemExit, unless the exit code is 0. Some services take any SystemExit for a failure.
    """
    sys.argv = ["migrator", *words, *([] if "--spark" in words else ["--spark", "submit"])]
    try:
        command()
    except SystemExit as ended:
        if ended.code:
            raise


if __name__ == "__main__":
    main(sys.argv[1:])
