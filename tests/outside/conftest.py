"""What others rely on, held as text files below `__snapshots__/`, so that a change of it is read as a diff.

Where a change is meant: `.ci/pins`, and read the diff.
"""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode


class _TextFiles(SingleFileSnapshotExtension):
    file_extension = "txt"
    _write_mode = WriteMode.TEXT


@pytest.fixture
def pinned(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """The text that the repository holds of this test."""
    return snapshot.use_extension(_TextFiles)
