"""Files that never end, or that are never written to, where a mapping, a job or a source is named."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.runtime.errors import MappingError, MigratorError, SettingsError
from migrator.runtime.system import MOST_BYTES
from migrator.settings.job import load_job
from migrator.settings.transforms import read_mapping
from migrator.source.engines.connect import SecretProviders, address_of, source_url
from tests import pins


def file_of_a_url(path: Path) -> object:
    secret_providers = SecretProviders(path.parent, {}, lambda _: "")
    return address_of(f"file:{path.name}", (), secret_providers).url()


READERS: dict[str, Callable[[Path], object]] = {
    "mapping": read_mapping,
    "job": lambda path: load_job(path, {}),
    "URL": file_of_a_url,
    "SQLite": lambda path: source_url(f"sqlite:///{path}"),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_is_refused_at_once(tmp_path: Path, reader: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    told: list[str] = []

    def read() -> None:
        with pytest.raises(SettingsError) as refused:
            READERS[reader](pipe)
        told.append(str(refused.value))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(120)
    assert pins.said("".join(told))


@pytest.mark.parametrize("reader", ["mapping", "job", "URL"])
def test_a_device_is_refused(reader: str) -> None:
    with pins.refused(SettingsError):
        READERS[reader](Path("/dev/zero"))


@pytest.mark.parametrize("reader", ["mapping", "job", "URL"])
def test_file_over_the_size_limit_is_refused_with_the_limit(tmp_path: Path, reader: str) -> None:
    file = tmp_path / "large"
    file.write_bytes(b"# a\n" * (MOST_BYTES // 4) + b"x")
    with pins.refused(MigratorError):
        READERS[reader](file)


def test_a_file_of_just_the_limit_is_read(tmp_path: Path) -> None:
    file = tmp_path / "mapping.yaml"
    text = "mapping: 1\ntable: {name: Shop, key: [PK, SK], type: type}\n"
    file.write_text(text + "#" * (MOST_BYTES - len(text)))
    with pins.refused(MappingError):
        read_mapping(file)
