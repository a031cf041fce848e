"""Fixtures of the browser tests: one server and one Chromium a process, a fresh page and notebook for each test."""

import shutil

import pytest
from playwright.sync_api import Error, expect, sync_playwright

import hybrid_lab as mx
from hybrid_lab.gluon import nn
from tests.browser.jupyter import FRONT_ENDS, ROOT, NotebookPage, launch, serve, write_notebook
from tests.lab.documents.test_documents import onnx_file

#: Tests that `make test` runs in both front ends.
IN_BOTH = ("test_save_change_reload_undo",)

expect.set_options(timeout=20_000)  # a slow machine needs seconds to draw what a fast one has drawn at once


@pytest.hookimpl(tryfirst=True)  # before tests/conftest.py leaves out the long ones
def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/browser" in item.path.as_posix():
            item.add_marker(pytest.mark.browser)
            # What is the same in both front ends runs in the first one; some tests in the other one as well.
            other = hasattr(item, "callspec") and item.callspec.params.get("front_end") in FRONT_ENDS[1:]
            if other and item.path.stem != "test_notebook7" and item.originalname not in IN_BOTH:
                item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    if not (ROOT / "hybrid_lab" / "labextension" / "package.json").exists():
        pytest.skip("the front end is not built: make build")
    with serve(tmp_path_factory.mktemp("jupyter")) as running:
        yield running


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        try:
            started = launch(playwright)
        except Error as error:
            reason = error.message.splitlines()[0]
            pytest.skip(f"no Chromium: apt-get install chromium, or set CHROMIUM to its path ({reason})")
        yield started
        started.close()


@pytest.fixture
def page(browser):
    """An empty page; an error in this project's scripts fails the test (Notebook 7 has some of its own)."""
    context = browser.new_context(viewport={"width": 1500, "height": 1000})
    page = context.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(error.stack or str(error)))
    yield page
    context.close()
    ours = [error for error in errors if "hybrid-lab" in error]
    assert not ours, ours


@pytest.fixture(params=FRONT_ENDS)
def front_end(request):
    return request.param


@pytest.fixture
def open_cells(server, page, front_end, request):
    """open_cells(cells) -> NotebookPage: a new notebook of these code cells, in the front end of the test.

    No test finds another one's kernel, archives or runs.
    """
    for path in (*server.folder.glob("*.hlab"), *server.folder.glob(".hybrid_lab_runs.sqlite*")):
        path.unlink()
    shutil.rmtree(server.folder / ".hybrid_lab_history", ignore_errors=True)

    def open_notebook(cells):
        name = f"{request.path.stem}_{request.node.name.replace('[', '_').replace(']', '')}.ipynb"
        write_notebook(server.folder / name, cells)
        return NotebookPage(page, server, front_end, name)

    return open_notebook


@pytest.fixture(scope="session")
def files(server):
    """A model in every kind of file, in the server's folder."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, activation="relu"), nn.Flatten(), nn.Dense(2))
    net.initialize()
    net.hybridize()
    net(mx.nd.ones((1, 1, 6, 6)))
    folder = server.folder / "files"
    folder.mkdir(exist_ok=True)
    net.save(folder / "net.hlab")
    net.export(str(folder / "exported"))
    net.save_parameters(str(folder / "net.safetensors"))
    net[0].weight.set_data(net[0].weight.data() * 2)
    net.save(folder / "later.hlab")
    onnx_file(folder / "chain.onnx", 3)
    (folder / "broken.hlab").write_bytes((folder / "net.hlab").read_bytes()[:-100])
    return folder


@pytest.fixture
def tutorial(server, page, front_end):
    """The shipped tutorial, a copy of it."""
    name = f"tutorial_{front_end}.ipynb"
    shutil.copy(ROOT / "notebooks" / "01_tutorial.ipynb", server.folder / name)
    return NotebookPage(page, server, front_end, name)
