"""A Jupyter server for the browser tests, and a driver for one notebook in JupyterLab or Notebook 7."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Browser, Locator, Page, Playwright, expect

ROOT = Path(__file__).resolve().parents[2]

CHROMIUM_FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
).split()

#: The Python whose JupyterLab is driven; the wheel's test names the one of an environment with nothing else in it.
PYTHON = os.environ.get("JUPYTER_PYTHON", sys.executable)

#: The front ends that are tested: the first one by every test that is not about the other, all of them by some tests.
FRONT_ENDS = os.environ.get("HYBRID_LAB_FRONT_ENDS", "lab notebook").split()

#: For tests of code that is the same in all front ends.
IN_ONE_FRONT_END = pytest.mark.parametrize("front_end", FRONT_ENDS[:1])

#: For tests of what only JupyterLab has, or only Notebook 7.
IN_LAB_ONLY = pytest.mark.parametrize("front_end", [name for name in FRONT_ENDS if name == "lab"])
IN_NOTEBOOK_ONLY = pytest.mark.parametrize("front_end", [name for name in FRONT_ENDS if name == "notebook"])

#: Seconds a whole notebook may take.
PATIENCE = 240


def find_chromium() -> str | None:
    """Path of the Chromium to use; None leaves the choice to Playwright. `$CHROMIUM` wins."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return os.environ.get("CHROMIUM") or next((path for name in names if (path := shutil.which(name))), None)


def launch(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_FLAGS)


class Server:
    """A running Jupyter server: `url` with its token, `folder` with the notebooks. It serves both front ends."""

    def __init__(self, url: str, token: str, folder: Path, log: Path) -> None:
        self.url, self.token, self.folder, self.log = url, token, folder, log

    def address(self, front_end: str, file: str) -> str:
        """The page of a notebook or of another file."""
        own = "notebooks" if file.endswith(".ipynb") else "edit"  # Notebook 7 has a page for each
        place = {"lab": f"lab/tree/{file}?reset&", "notebook": f"{own}/{file}?"}[front_end]
        return f"{self.url}/{place}token={self.token}"


def _environment(home: Path) -> dict[str, str]:
    """Settings of its own, and the extension of this checkout where it is not installed, or another checkout's is."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "IPYTHON", "HYBRID_LAB"))}
    data = home / "share"
    prefix = Path(PYTHON).parents[1]
    installed, ours = prefix / "share/jupyter/labextensions/hybrid-lab", ROOT / "hybrid_lab" / "labextension"
    is_another_checkout = installed.is_symlink() and installed.resolve() != ours.resolve()
    if is_another_checkout or not (installed / "package.json").exists():
        # Not a link: JupyterLab's server before 2.28.1 does not follow links to other folders.
        shutil.copytree(ours, data / "labextensions" / "hybrid-lab")
        variables["JUPYTER_PATH"] = str(data)
        variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), variables.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    config = home / "config"
    config.mkdir()
    extensions = {"ServerApp": {"jpserver_extensions": {"hybrid_lab.lab.server": True}}}
    (config / "jupyter_server_config.json").write_text(json.dumps(extensions))
    own = {
        "HOME": home,
        "JUPYTER_CONFIG_DIR": config,
        "JUPYTER_RUNTIME_DIR": home / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": home / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces",
        "IPYTHONDIR": home / "ipython",
    }
    return variables | {name: str(path) for name, path in own.items()} | {"OPENBLAS_NUM_THREADS": "2"}


@contextmanager
def serve(home: Path, program: Sequence[str] = ("jupyterlab",), answered: bool = True) -> Iterator[Server]:
    """Start a server in `home`, and end it afterwards.

    program : the Python module to run, and its arguments; answered : whether JupyterLab's question about news was
        answered before
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token, folder, log = secrets.token_hex(8), home / "notebooks", home / "server.log"
    folder.mkdir()
    environment = _environment(home)
    settings = home / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    if answered:
        quiet = {"fetchNews": "false", "checkForUpdates": False}  # no question about news on top of the page
        (settings / "notification.jupyterlab-settings").write_text(json.dumps(quiet))
    command = [
        *(PYTHON, "-m", *program, "--no-browser", "--allow-root", f"--port={port}", "--ServerApp.port_retries=0"),
        *(f"--ServerApp.root_dir={folder}", f"--IdentityProvider.token={token}", "--LabApp.expose_app_in_browser=True"),
        "--JupyterNotebookApp.expose_app_in_browser=True",
    ]
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)
    server = Server(f"http://127.0.0.1:{port}", token, folder, log)
    try:
        _wait_for(server, process)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait_for(server: Server, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{server.url}/api?token={server.token}", timeout=2):
                return
        except OSError:
            time.sleep(0.25)
    raise RuntimeError(f"Jupyter did not start:\n{server.log.read_text()[-4000:]}")


def write_notebook(path: Path, cells: Sequence[str]) -> None:
    """A Python notebook of code cells."""
    notebook = nbformat.v4.new_notebook()
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    }
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbformat.write(notebook, path)


_IN_KERNEL = """async code => {
  const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
  const future = kernel.requestExecute({ code, store_history: false });
  let text = '';
  future.onIOPub = message => {
    if (message.header.msg_type === 'stream' && message.content.name === 'stdout') text += message.content.text;
    if (message.header.msg_type === 'error') text += message.content.traceback.join('\\n');
  };
  const reply = await future.done;
  return [reply.content.status, text];
}"""

_HAS_KERNEL = "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel"

_STATUS = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status"

_SET_SOURCE = """([index, source]) => {
  const cell = window.jupyterapp.shell.currentWidget.content.model.cells.get(index);
  cell.sharedModel.setSource(source);
}"""

_CELLS = """() => window.jupyterapp.shell.currentWidget.content.model.sharedModel.toJSON().cells
  .filter(cell => cell.cell_type === 'code')"""


class NotebookPage:
    """One notebook in one front end ("lab" or "notebook")."""

    def __init__(self, page: Page, server: Server, front_end: str, notebook: str) -> None:
        self.page, self.server, self.front_end = page, server, front_end
        page.goto(server.address(front_end, notebook))
        page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=90_000)
        self.wait_kernel()

    def wait_kernel(self) -> None:
        """Until the notebook has a running kernel."""
        self.page.wait_for_function(_HAS_KERNEL, timeout=60_000)
        self.page.wait_for_function(f"() => ['idle', 'busy'].includes({_STATUS})", timeout=60_000)

    @property
    def version(self) -> tuple[int, int]:
        """Of JupyterLab; Notebook 7.n is made of the parts of JupyterLab 4.n."""
        major, minor = self.page.evaluate("() => window.jupyterapp.version").split(".")[:2]
        return (4, int(minor)) if self.front_end == "notebook" else (int(major), int(minor))

    def needs_answers_of_busy_kernels(self) -> None:
        """Skip the test where a page's requests wait for the running cell."""
        if self.version < (4, 4):
            pytest.skip("before JupyterLab 4.4 a request waits until the running cell has ended")

    # -- the panel ---------------------------------------------------------------------------------------------------

    @property
    def panel(self) -> Locator:
        return self.page.locator("#hybrid-lab-panel")

    def show_panel(self) -> Locator:
        self.command("hybrid-lab:show-panel")
        expect(self.panel).to_be_visible()
        return self.panel

    def row(self, name: str) -> Locator:
        """A line of the panel's tree."""
        return self.panel.get_by_role("treeitem").filter(has=self.page.locator(".hl-row-name", has_text=exactly(name)))

    def open_menu(self, name: str = "More actions", place: Locator | None = None) -> None:
        """Unfold a menu of the panel, or of another view."""
        button = (place or self.panel).get_by_role("button", name=name, exact=True)
        if button.get_attribute("aria-expanded") != "true":
            button.click()

    def open_drawer(self, name: str, place: Locator | None = None) -> None:
        """Open a tab of the panel's drawer, or of another view's."""
        tab = (place or self.panel).get_by_role("tab", name=re.compile(f"^{name}"))
        if tab.get_attribute("aria-selected") != "true":
            tab.click()

    def close_drawer(self, place: Locator | None = None) -> None:
        """Close the drawer, which lies over the graph, where it is open."""
        button = (place or self.panel).get_by_role("button", name="Close the drawer")
        if button.is_visible():
            button.click()

    def unfold_card(self, place: Locator | None = None) -> None:
        """Unfold the card of the overlay, which is one line where the picture is small."""
        button = (place or self.panel).get_by_role("button", name="Fold the card of the overlay")
        if button.get_attribute("aria-expanded") != "true":
            button.click()

    def widen(self, width: int) -> None:
        """Drag the edge of JupyterLab's side panel until it is so many pixels wide."""
        box = self.page.locator("#jp-left-stack").bounding_box()
        right, middle = box["x"] + box["width"] + 2, box["y"] + box["height"] / 2
        self.page.mouse.move(right, middle)
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + width + 2, middle, steps=4)
        self.page.mouse.up()
        wait_for(lambda: abs(self.panel.bounding_box()["width"] - width) < 3)

    def name_file(self, name: str) -> None:
        """The name of the file that the panel's buttons act on."""
        self.open_menu()
        self.panel.get_by_label("File of this model").fill(name)
        self.page.keyboard.press("Escape")

    def click(self, button: str) -> None:
        self.panel.get_by_role("button", name=button, exact=True).click()

    def result(self, text: str) -> Locator:
        """Wait for a message of the panel's buttons."""
        place = self.panel.locator(".hl-results", has_text=text).first
        expect(place).to_be_visible(timeout=30_000)
        return place

    # -- the notebook ------------------------------------------------------------------------------------------------

    def command(self, name: str, wait: bool = False) -> None:
        """Execute a command; `wait`: until it is done, which for a cell is the end of its run."""
        done = "window.jupyterapp.commands.execute(name)"
        self.page.evaluate(f"name => {done}.then(() => null)" if wait else f"name => void {done}", name)

    def cells(self) -> list[dict]:
        """The code cells as they would be saved."""
        return self.page.evaluate(_CELLS)

    def run_all(self, wait: bool = True) -> None:
        self.command("notebook:run-all-cells")
        if wait:
            self.wait_run()

    def run_cell(self, index: int, wait: bool = True) -> None:
        """Run the code cell at this position among all cells."""
        self.show_cell(index)
        self.page.evaluate("index => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = index; }", index)
        self.command("notebook:run-cell", wait)
        if wait:
            self.wait_idle()

    def wait_run(self) -> None:
        """Until every code cell ran; fails with the first error output."""
        until = time.monotonic() + PATIENCE
        while True:
            cells = [cell for cell in self.cells() if "".join(cell["source"]).strip()]
            for cell in cells:
                for output in cell["outputs"]:
                    if output["output_type"] == "error":
                        raise AssertionError("\n".join(output["traceback"]))
            if all(cell["execution_count"] for cell in cells):
                break
            assert time.monotonic() < until, "the notebook runs too long"
            self.page.wait_for_timeout(300)
        self.wait_idle()

    def wait_idle(self) -> None:
        self.page.wait_for_timeout(200)
        self.page.wait_for_function(f"() => {_STATUS} === 'idle'", timeout=PATIENCE * 1000)

    def is_running(self, index: int) -> bool:
        """Whether this cell runs, or waits for its turn."""
        return "*" in (self.show_cell(index).locator(".jp-InputPrompt").first.text_content() or "")

    def kernel(self, code: str) -> str:
        """Run code in the kernel, unseen; what it prints."""
        status, text = self.page.evaluate(_IN_KERNEL, code)
        assert status == "ok", text
        return text.strip()

    def show_cell(self, index: int) -> Locator:
        """Scroll a cell (counted among all cells) into view."""
        self.page.evaluate(
            "index => window.jupyterapp.shell.currentWidget.content.scrollToItem(index, 'center')", index
        )
        cell = self.page.locator(f'.jp-Notebook .jp-Cell[data-windowed-list-index="{index}"]')
        expect(cell).to_be_visible()
        return cell

    def marks(self, index: int) -> list[str]:
        """The underlined pieces of a cell, in order; a piece may run over several highlighted tokens."""
        cell = self.show_cell(index)
        return cell.evaluate(
            """cell => {
              const marks = [];
              for (const line of cell.querySelectorAll('.cm-line')) {
                const walker = document.createTreeWalker(line, NodeFilter.SHOW_TEXT);
                let open = false;
                while (walker.nextNode()) {
                  const text = walker.currentNode;
                  const marked = text.parentElement.closest('.cm-lintRange.hl-lint') !== null;
                  if (marked && open) marks[marks.length - 1] += text.data;
                  else if (marked) marks.push(text.data);
                  open = marked;
                }
              }
              return marks;
            }"""
        )

    def expect_marks(self, index: int, expected: list[str]) -> None:
        """Wait until exactly these pieces of the cell are underlined."""
        until = time.monotonic() + 15
        while (found := self.marks(index)) != expected:
            assert time.monotonic() < until, f"marked are {found}, expected {expected}"
            self.page.wait_for_timeout(200)

    def set_source(self, index: int, source: str) -> None:
        """Replace a cell's text, as typing does."""
        self.page.evaluate(_SET_SOURCE, [index, source])


def wait_for(condition: Callable[[], bool], seconds: float = 15) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not so within {seconds} seconds"
        time.sleep(0.2)


def exactly(text: str) -> re.Pattern[str]:
    return re.compile(f"^{re.escape(text)}$")
