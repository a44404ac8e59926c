from __future__ import annotations

import hashlib
import os
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

from tests.support_journal_file import journal_in_file

TABLE_ID = "arn:aws:dynamodb:eu-central-1:123456789012:table/Shop/7f6b1c1e-0d55-4b8e-9d6e-3a1f0a3d0b11"
PAGE = 500
PLANTED = 1000
KEYS = int(os.environ.get("MIGRATOR_TEST_KEYS", 10_000_000))


def digest(number: int) -> bytes:
    return hashlib.blake2b(f'["EMAIL#{number}@example.com","EMAIL"]'.encode(), digest_size=16).digest()


def claim_all(path: Path, keys: int) -> None:
    """Print the results: planted, found, seconds, peak MB before and in total, the file in MB."""
    journal = journal_in_file(path)
    before_mb, started = peak_mb(), time.monotonic()
    # Row n makes key n; each planted row, all of them in the second half, makes the key of a row in the first.
    chance = random.Random(7)
    planted = {one: chance.randrange(keys // 2) for one in chance.sample(range(keys // 2, keys), PLANTED)}
    found = 0
    for start in range(0, keys, PAGE):
        rows = range(start, min(start + PAGE, keys))
        claims = [(digest(planted.get(row, row)), f"users:[{row}]") for row in rows]
        found += len(journal.claim(TABLE_ID, claims))
    journal.close()
    took_s = time.monotonic() - started
    print(PLANTED, found, round(took_s), round(before_mb), round(peak_mb()), path.stat().st_size >> 20)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(folder: Path, keys: int) -> list[int]:
    words = [sys.executable, "-m", "bench.test_claims", str(folder / f"{keys}.db"), str(keys)]
    return [int(word) for word in subprocess.run(words, capture_output=True, check=True).stdout.split()]


def held(folder: Path, keys: int) -> None:
    """Assert that every collision is found and that memory is bounded; print the figures."""
    planted, found, took_s, before_mb, most_mb, file_mb = measured(folder, keys)
    rate = keys // max(took_s, 1)
    print(
        f"\n{keys:,} keys: {took_s} s ({rate:,} a second), {before_mb} to {most_mb} MB, file {file_mb:,} MB"
    )
    assert found == planted
    assert most_mb - before_mb < 100


def test_ten_million_keys_are_claimed_in_bounded_memory(tmp_path: Path) -> None:
    held(tmp_path, KEYS)


if __name__ == "__main__":
    claim_all(Path(sys.argv[1]), int(sys.argv[2]))
