"""Type checkers follow no finder: `hybrid_lab-stubs/` tells them where the modules of older public names are.

It is a partial stub package (PEP 561), which the wheel puts beside the package.
"""

from pathlib import Path

from hybrid_lab import aliases

ROOT = Path(__file__).resolve().parents[2]
STUBS = ROOT / "hybrid_lab-stubs"
#: Never public.
INSIDE = {"image_files", "scopes"}


def test_each_public_older_name_has_a_stub():
    public = {
        name: place
        for name, place in aliases.MODULES.items()
        if not name.startswith("_") and "." not in name and not place.startswith("system.") and name not in INSIDE
    }
    stubs = {path.stem: path.read_text() for path in STUBS.glob("*.pyi")}
    expected = {name: f"from hybrid_lab.{place} import *\n" for name, place in public.items() if name != "contrib"}
    assert stubs == expected


def test_the_stubs_of_contrib():
    names = {path.stem: path.read_text() for path in (STUBS / "contrib").glob("*.pyi")}
    package = names.pop("__init__")
    place = f"hybrid_lab.{aliases.MODULES['contrib']}"
    assert package.splitlines() == [f"from {place} import {name} as {name}" for name in sorted(names)]
    assert all(text == f"from {place}.{name} import *\n" for name, text in names.items())


def test_the_package_has_the_rest():
    assert (STUBS / "py.typed").read_text() == "partial\n"
