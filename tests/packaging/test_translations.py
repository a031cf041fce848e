"""The front end in other languages: catalogs are complete, and JupyterLab's server finds them."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCALE = ROOT / "hybrid_lab" / "lab" / "locale"
LANGUAGES = sorted(path.stem for path in (ROOT / "extension" / "locale").glob("*.po"))


def test_catalogs_have_every_text_and_are_those_of_the_po_files():
    pytest.importorskip("babel")
    if shutil.which("node") is None or not (ROOT / "node_modules").exists():
        pytest.skip("Node and its packages are needed: make build")
    command = [sys.executable, "scripts/write_translations.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("forms", "complete"), [(("", ""), False), (("%1 Ding", ""), False), (("a %1", "b %1"), True)])
def test_a_text_with_two_forms_needs_both(forms, complete):
    catalog = pytest.importorskip("babel.messages.catalog").Catalog(locale="de_DE")
    catalog.add(("%1 thing", "%1 things"), forms)
    catalog.add("Save", "Speichern")
    spec = importlib.util.spec_from_file_location("write_translations", ROOT / "scripts" / "write_translations.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    found = script.problems(catalog, [("%1 thing", "%1 things"), "Save"])
    assert found == ([] if complete else ["('%1 thing', '%1 things') has no translation"])


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_catalog_is_named_after_a_language_pack(language):
    # JupyterLab asks for the name of a pack: jupyterlab-language-pack-de-DE is "de_DE", and none is "de".
    assert re.fullmatch("[a-z]{2}_[A-Z]{2}", language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_jupyterlab_finds_the_catalog(language, monkeypatch):
    utils = pytest.importorskip("jupyterlab_server.translation_utils")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["jupyterlab.locale"]
    points = [EntryPoint(name, value, "jupyterlab.locale") for name, value in declared.items()]
    monkeypatch.setattr(utils, "entry_points", lambda group: points)
    found, problem = utils.get_installed_packages_locale(language)
    assert not problem
    header = found["hybrid_lab"][""]
    assert header["language"].replace("-", "_") == language and header["plural_forms"].startswith("nplurals=")
    assert found["hybrid_lab"]["Findings"] != ["Findings"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_there_are_as_many_forms_as_the_language_has(language):
    catalog = json.loads((LOCALE / language / "LC_MESSAGES" / "hybrid_lab.json").read_text(encoding="utf-8"))
    count = int(catalog[""]["plural_forms"].split("=")[1].split(";")[0])
    assert len(catalog["%1 Block"]) == count and len(catalog["Save"]) == 1
