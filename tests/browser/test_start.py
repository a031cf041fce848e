"""`hybrid-lab lab`, which `make lab` runs too: the page that a new user sees first."""

from playwright.sync_api import expect

from tests.browser.jupyter import IN_LAB_ONLY, serve, write_notebook

#: What JupyterLab says at the lower edge of the page.
NOTICE = ".Toastify__toast"


@IN_LAB_ONLY
def test_nobody_is_asked_about_news(page, tmp_path, front_end):
    """JupyterLab by itself asks, which shows that the test would see it."""
    for name, program in (("plain", ["jupyterlab"]), ("ours", ["hybrid_lab", "lab"])):
        (tmp_path / name).mkdir()
        with serve(tmp_path / name, program, answered=False) as server:
            write_notebook(server.folder / "a.ipynb", ["1"])
            page.goto(server.address(front_end, "a.ipynb"))
            page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=90_000)
            page.wait_for_function("() => window.jupyterapp.restored.then(() => true)")
            if name == "plain":
                expect(page.locator(NOTICE)).to_contain_text("Jupyter news")
            else:
                page.wait_for_timeout(5000)
                expect(page.locator(NOTICE)).to_have_count(0)
