"""Lines that magics, errors and reports name are those of the cell as its editor shows it, in a real kernel."""

import pytest

pytest.importorskip("ipykernel")

from hybrid_lab.lab.messages.connection import PROTOCOL  # noqa: E402
from tests.lab.kernel_process import Kernel  # noqa: E402

SETUP = "import logging, numpy as np\nimport hybrid_lab as mx\nfrom hybrid_lab import gluon, nd\nx = nd.ones((2, 2))"
BODY = """class N(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        y = F.exp(x)
        return y * np.random.rand()


class Wrong(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x if x.sum() > 0 else -x


net, wrong = N(), Wrong()
net.hybridize(engine="numpy")
wrong.hybridize(engine="numpy")"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    made = Kernel(tmp_path_factory.mktemp("kernel"))
    made.run(SETUP)
    yield made
    made.stop()


@pytest.mark.parametrize(
    "head",
    [
        "",
        "\n\n",
        "# text\n\n",
        "%%hybrid_lint\n",
        "%%hybrid_lint\n\n",
        "%%capture\n",
        "  \n\n%%capture\n\n",
        "%matplotlib --list\n",
        "%%time\n",
        "\n%%time\n\n# text\n",
    ],
)
def test_lines_are_those_of_the_cell(kernel, head):
    cell = head + BODY
    kernel.run(cell)
    number = kernel.number
    lines = cell.split("\n")
    frozen, branch = (1 + next(i for i, text in enumerate(lines) if part in text) for part in ("np.random", "x.sum()"))
    printed = kernel.run("\n\nresult = %hybrid_compare net x\nprint(result)")
    assert f"cell {number}, line {frozen}, in N.hybrid_forward" in printed
    assert f"{frozen:>5} |         return y * np.random.rand()" in printed
    printed = kernel.run("try:\n    wrong(x)\nexcept mx.HybridizeError as error:\n    print(error)")
    assert f"cell {number}, line {branch}, in Wrong.hybrid_forward" in printed
    printed = kernel.run(
        "from hybrid_lab.lab.places import located\n"
        "try:\n    wrong(x)\nexcept mx.HybridizeError as error:\n    print(located(error.location)['line'])"
    )
    assert printed.strip().endswith(str(branch))
    page = kernel.page()
    page.ok("hello", front_end="0", protocol=PROTOCOL, notebook="")
    model = next(each["id"] for each in page.ok("models")["models"] if each["name"] == "wrong")
    (finding,) = page.ok("findings", model=model)["findings"]
    assert (finding["line"], finding["location"]["line"]) == (branch, branch)
    assert finding["location"]["label"] == f"cell {number}, line {branch}"


def test_a_call_by_a_magic_is_called_at_the_cell_s_line(kernel):
    kernel.run(BODY)
    kernel.run("# text\n\nreport = %hybrid_explain net x")
    number = kernel.number
    assert f"called at cell {number}, line 3" in kernel.run("print(report)").replace("\n          ", " ")


TIMED = {"# text\n%time where()": 2, "%%timeit -n1 -r1\n\nwhere()": 3, "%%time\nwhere()": 2}


@pytest.mark.parametrize("cell", TIMED)
def test_timed_code_is_named_by_its_cell(kernel, cell):
    kernel.run(
        "import sys\nfrom hybrid_lab.diagnostics.location import Location\nfrom hybrid_lab.lab.places import located\n"
        "def where():\n    frame = sys._getframe(1)\n    print(located(Location(frame.f_code, frame.f_lasti))['label'])"
    )
    assert f"cell {kernel.number + 1}, line {TIMED[cell]}" in kernel.run(cell)
