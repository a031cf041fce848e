"""Places in the user's code: captured outside the package, resolved when printed, cells by number."""

from __future__ import annotations

import linecache
import pickle

import pytest

from hybrid_lab.diagnostics import Location, capture, register_cell
from hybrid_lab.diagnostics.location import display_file


def run_cell(text: str, file: str) -> dict:
    """Run text as IPython runs a cell: under a made-up file name, with its lines in linecache."""
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    namespace = {"capture": capture}
    exec(compile(text, file, "exec"), namespace)
    return namespace


def test_the_place_of_the_call():
    place = capture()  # here
    assert place.file == __file__
    assert place.source_line == "    place = capture()  # here"
    assert place.source_line[place.col : place.end_col] == "capture()"
    assert (place.line, place.function) == (place.end_line, "test_the_place_of_the_call")


def test_frames_of_the_package_are_skipped():
    code = compile("def inside(f):\n    return f()\n", __import__("hybrid_lab").__file__, "exec")
    namespace: dict = {}
    exec(code, namespace)
    assert namespace["inside"](lambda: capture()).function.endswith("<lambda>")
    assert namespace["inside"](capture).function == "test_frames_of_the_package_are_skipped"
    assert namespace["inside"](lambda: capture(skip_package=False)).file == __file__


def test_a_cell_is_named_by_its_number():
    text = "class Net:\n    def hybrid_forward(self, F, x):\n        return capture()\n"
    text += "place = Net().hybrid_forward(0, 1)\n"
    file = "/tmp/ipykernel_4711/123456.py"
    place = run_cell(text, file)["place"]
    assert place.describe() == "a notebook cell, line 3, in Net.hybrid_forward"
    register_cell(file, 7)
    assert place.describe() == "cell 7, line 3, in Net.hybrid_forward"
    assert str(place) == "cell 7:3"
    register_cell(file, 9)
    assert str(place) == "cell 9:3"


@pytest.mark.parametrize(
    ("file", "shown"), [("<ipython-input-3-0a1b2c>", "cell 3"), ("/home/me/net.py", "/home/me/net.py")]
)
def test_files_as_users_know_them(file, shown):
    assert display_file(file) == shown


def test_top_level_code_has_no_function():
    place = run_cell("place = capture()\n", "<ipython-input-5-ff>")["place"]
    assert place.describe() == "cell 5, line 1"


def test_a_local_function_goes_by_its_own_name():
    def inner():
        return capture()

    assert inner().function == "inner"


def test_columns_count_characters():
    place = run_cell("größe = '🙂'; place = capture()\n", "<ipython-input-6-ff>")["place"]
    assert place.source_line[place.col : place.end_col] == "capture()"
    assert place.excerpt() == f"    1 | {place.source_line}\n      | {' ' * 22}{'^' * 9}"


def test_an_expression_over_several_lines_is_marked_on_its_first():
    place = run_cell("place = capture(\n    True\n)\n", "<ipython-input-8-ff>")["place"]
    assert (place.line, place.end_line) == (1, 3)
    assert place.excerpt().splitlines()[1].count("^") == len("capture(")


def test_a_place_crosses_processes():
    place = run_cell("place = capture()\n", "<ipython-input-9-ff>")["place"]
    copy = pickle.loads(pickle.dumps(place))
    assert (str(copy), copy.describe(), copy.excerpt()) == (str(place), place.describe(), place.excerpt())
    assert copy == pickle.loads(pickle.dumps(copy))


def test_a_place_given_in_words():
    assert Location.known("net.py", 12, function="Net.forward").describe() == "net.py, line 12, in Net.forward"


def test_source_that_is_gone():
    namespace = {"capture": capture}
    exec(compile("\n\nplace = capture()", "<string>", "exec"), namespace)
    place = namespace["place"]
    assert (place.line, place.source_line, place.excerpt()) == (3, "", "")


def test_equal_places_are_equal():
    places = [capture() for _ in range(2)]
    assert places[0] == places[1] and len(set(places)) == 1
    assert places[0] != capture()
    assert isinstance(places[0], Location)
