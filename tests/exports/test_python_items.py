"""Generated Python beside the heart on all rows of Chinook and of the shop: every item, byte for byte, in both modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from migrator.features.exports.python.expressions import Names
from migrator.features.exports.python.module import LINE_LENGTH, formatted, python_module
from migrator.mapping.items.items import items_for
from migrator.runtime.errors import SettingsError
from tests.designs.golden import exactly
from tests.exports.generated import items_of, loaded, row_model, row_of
from tests.exports.shop import SHOP
from tests.exports.typescript import Opened, opened, opened_design
from tests.forking import run_python
from tools.pages.golden import ROOT

pytestmark = pytest.mark.slow


def compared(made: Opened, folder: Path) -> int:
    """How many items were made, in both modules as by the heart."""
    modules = []
    for after in (False, True):
        path = folder / made.model.table.name / f"after_{after}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(python_module(made.model, [], "job", after=after)[0], encoding="utf-8")
        modules.append(loaded(path))
    own, counted = made.model.table.own_attributes, 0
    for entity in made.checked.entities:
        row = row_model(made.model, entity.name)
        for tree in made.source.read_page(entity.plan, None, None, None):
            items = items_for(entity, tree)
            wanted = exactly([{name: item[name] for name in item if name not in own} for item in items])
            for module in modules:
                assert exactly(items_of(module, row, row_of(module, entity, row, tree))) == wanted, tree
            counted += len(wanted)
    return counted


def test_every_item_of_chinook_is_the_hearts(chinook_dir: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{chinook_dir / 'Chinook_Sqlite.sqlite'}"
    with opened(ROOT / "mappings" / "chinook.yaml", url) as made:
        assert compared(made, tmp_path) == 15_666


@pytest.mark.nightly
def test_every_item_of_the_shop_is_the_hearts(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    build = [ROOT / "docker" / "shop" / "build.py", "--scale", "1", url]
    run_python(build, check=True)
    with opened(SHOP, url) as made:
        assert compared(made, tmp_path) > 37_000


def test_names_that_linters_refuse_get_an_underscore() -> None:
    assert list(Names().all(["l", "O", "I", "class", "row", "L"]).values()) == [
        "l_",
        "O_",
        "I_",
        "class_",
        "row_",
        "L",
    ]


@pytest.mark.parametrize("after", [False, True])
def test_long_names_pass_a_linter_that_limits_lines(tmp_path: Path, *, after: bool) -> None:
    with opened_design("app_data", tmp_path) as made:
        text, _ = python_module(made.model, [], "job", after=after)
    assert max(map(len, text.splitlines())) > LINE_LENGTH
    ruff = ["ruff", "check", "--isolated", "--select=E501", f"--line-length={LINE_LENGTH}", "-"]
    ended = subprocess.run(
        [sys.executable, "-m", *ruff], input=text.encode(), capture_output=True, check=False
    )
    assert ended.returncode == 0, ended.stdout


def test_a_module_of_the_working_directory_does_not_run_in_place_of_ruff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ruff.py", "sysconfig.py"):
        (tmp_path / name).write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    assert formatted("a=1") == "a = 1\n"


def test_text_that_ruff_refuses_is_an_error_with_its_reason() -> None:
    with pytest.raises(SettingsError) as refused:
        formatted("def (")
    assert "\n" not in str(refused.value)
