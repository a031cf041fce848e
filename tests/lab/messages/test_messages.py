"""The protocol's types are the one source of the front end's checks, and docs/protocol.md names every field."""

import importlib.util
import re
from pathlib import Path
from typing import get_type_hints

import pytest

from hybrid_lab.lab.kernel.session import Session
from hybrid_lab.lab.messages import connection, errors, requests
from hybrid_lab.lab.views import widget

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def writer():
    spec = importlib.util.spec_from_file_location("write_protocol", ROOT / "scripts" / "write_protocol.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_front_end_s_half_is_up_to_date(writer):
    assert writer.page() == writer.TARGET.read_text(encoding="utf-8"), "run scripts/write_protocol.py"


def test_the_page_of_the_protocol_names_every_request_and_field(writer):
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    records = {}
    for name, bodies in requests.REQUESTS.items():
        assert f"### `{name}`" in page
        for body in bodies:
            writer.records(body, records)
    for record in (*records, connection.ErrorBody, connection.Progress, connection.Envelope, errors.CellError):
        for field in get_type_hints(record):
            assert f"`{field}`" in page or f'"{field}"' in page, f"{record.__name__}.{field}"


def test_every_request_has_a_method():
    missing = [f"_on_{name}" for name in requests.REQUESTS if not hasattr(Session, f"_on_{name}")]
    assert missing == [], "write them in hybrid_lab/lab/kernel/session.py"


def test_every_request_is_in_a_table(writer):
    assert writer.without_request() == []


def test_a_view_may_ask_what_the_page_of_the_protocol_says():
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    listed = page.partition("**Front end -> kernel**")[2].partition("**Kernel -> front end**")[0]
    assert set(re.findall(r"`(\w+)`\s\*\*w\*\*", listed)) == widget.ALLOWED == set(re.findall(r"### `(\w+)` w", page))
    assert set(re.findall(r"`(\w+)`", listed)) == requests.REQUESTS.keys()
