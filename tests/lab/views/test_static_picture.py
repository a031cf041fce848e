"""The picture that outlives the kernel: small, without scripts, in every notebook that shows a view."""

import re
import xml.etree.ElementTree as ElementTree
from html import unescape
from urllib.parse import unquote

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn
from hybrid_lab.lab.picture.graph_view import graph_view
from hybrid_lab.lab.views import static_picture
from hybrid_lab.lab.views.static_picture import picture_html, picture_svg


class Residual(gluon.HybridBlock):
    """Adds its input to what its body gives."""

    def __init__(self):
        super().__init__()
        self.body = nn.Dense(8)

    def hybrid_forward(self, F, x):
        return F.relu(x + self.body(x))


def reply(blocks, program=""):
    net = nn.HybridSequential()
    net.add(*blocks)
    net.initialize()
    net.hybridize()
    net(mx.nd.ones((2, 8)))
    return graph_view(net, "", program)


def drawing(picture):
    """(texts, number of arrows) of an SVG, which must be XML."""
    root = ElementTree.fromstring(picture)
    texts = ["".join(item.itertext()) for item in root.iter("{http://www.w3.org/2000/svg}text")]
    return texts, picture.count('class="e"')


def rectangles(picture):
    root = ElementTree.fromstring(picture)
    boxes = [item for item in root.iter("{http://www.w3.org/2000/svg}rect") if item.get("x")]
    return [[float(item.get(key)) for key in ("x", "y", "width", "height")] for item in boxes]


def test_a_small_graph_is_drawn_whole():
    texts, arrows = drawing(picture_svg(reply([nn.Dense(8), Residual()]))[0])
    assert {"data", "FullyConnected", "broadcast_add", "output"} <= set(texts) and "float32[2, 8]" in texts
    assert arrows == 6  # data, 2 layers, the way around the body, the addition, the activation


@pytest.mark.parametrize("blocks", [1, 3, 20, 60])
def test_nothing_overlaps_and_nothing_is_missing(blocks):
    """Whatever is opened: each operator is drawn, or inside of a box that is; and edges lead down."""
    graph = reply([Residual() for _ in range(blocks)])
    svg, note = picture_svg(graph)
    boxes = rectangles(svg)
    assert 2 < len(boxes) <= static_picture.MOST
    for number, (x, y, width, height) in enumerate(boxes):
        assert x >= 0 and y >= 0
        for other_x, other_y, other_width, other_height in boxes[:number]:
            apart = (x + width <= other_x or other_x + other_width <= x) or (
                y + height <= other_y or other_y + other_height <= y
            )
            assert apart
    texts, _ = drawing(svg)
    inside = sum(int(text.split()[0].replace(",", "")) for text in texts if re.fullmatch(r"[\d,]+ operators?", text))
    operators = [node for node in graph["nodes"] if node["kind"] == "operator"]
    drawn = len(boxes) - 2 - len([text for text in texts if re.fullmatch(r"[\d,]+ operators?", text)])
    assert inside + drawn == len(operators)
    assert (f"with {inside} operators inside" in note) == (inside > 0)


def test_a_large_graph_gives_a_small_picture():
    graph = reply([Residual() for _ in range(200)])
    assert len(picture_html(graph, "net")) < 30_000


def test_a_prologue_is_left_out():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3), nn.BatchNorm(), nn.Dense(2))
    net.initialize()
    net.hybridize()
    net(mx.nd.ones((1, 1, 8, 8)))
    graph = graph_view(net, "", "")
    texts, _ = drawing(picture_svg(graph)[0])
    assert not any("prologue" in text for text in texts)


def test_a_graph_that_is_not_there_is_a_sentence():
    net = gluon.nn.Sequential()
    html = picture_html(graph_view(net, "", ""), "net")
    assert "not a HybridBlock" in html and "<img" not in html


HOSTILE = "</text><script>alert(1)</script>\"'&%23\x00\u202e"


def test_hostile_names_are_text():
    graph = reply([nn.Dense(8)])
    for node in graph["nodes"]:
        node["label"] = HOSTILE
    graph["summary"] = HOSTILE
    html = picture_html(graph, HOSTILE)
    assert "<script" not in html and "\x00" not in html and "\u202e" not in html
    source = re.search('src="data:image/svg[+]xml,([^"]*)"', html).group(1)
    assert "#" not in source and "<" not in source
    texts, _ = drawing(unquote(source))
    assert any("<script>" in text for text in texts)
    assert not [item for item in ElementTree.fromstring(unquote(source)).iter() if item.tag.endswith("script")]


def test_the_picture_of_the_browser_is_taken_unless_it_is_large():
    graph = reply([nn.Dense(8)])
    small = '<svg viewBox="0 0 9 9"><text>a&nbsp;b</text><path d="M1 1"></path></svg>'
    html = picture_html(graph, "net", small)
    drawn = unquote(re.search('src="data:image/svg[+]xml,([^"]*)"', html).group(1))
    assert ElementTree.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg" and "M1 1" in html
    large = small.replace("M1 1", "M1 1" * static_picture.LARGEST)
    assert picture_html(graph, "net", large) == picture_html(graph, "net")


# -- on pages that leave little of the HTML ---------------------------------------------------------------------------

#: The elements and attributes that GitHub leaves of HTML, as far as is public: no style, no class, no SVG.
ELEMENTS = set(
    "h1 h2 h3 h4 h5 h6 br b i strong em a pre code img tt div ins del sup sub p ol ul table thead tbody tfoot "
    "blockquote dl dt dd kbd q samp var hr ruby rt rp li tr td th s strike summary details caption figure figcaption "
    "abbr bdo cite dfn mark small span time wbr".split()
)
ATTRIBUTES = {"*": {"alt", "title", "open", "role", "aria-label", "colspan", "width", "height"}, "img": {"src"}}


def sanitized(html):
    """What is left; images from data: addresses lose their source."""
    nh3 = pytest.importorskip("nh3")
    left = nh3.clean(html, tags=ELEMENTS, attributes=ATTRIBUTES, url_schemes={"http", "https"})
    assert "style" not in left and "data:image" not in left
    return left


def listed(html):
    """The lines of the table of operators, each as its cells."""
    (table,) = re.findall(r"<pre>(.*?)</pre>", sanitized(html), re.DOTALL)
    return [re.split("  +", line.strip()) for line in unescape(table).splitlines()]


def test_without_styles_and_images_the_graph_is_a_table():
    html = picture_html(reply([nn.Dense(8), Residual()]), "net")
    left = sanitized(html)
    assert left.index("Graph of net: predict (2, 8)") < left.index("<summary>4 operators as a table</summary>")
    assert listed(html) == [
        ["#", "operator", "result", "reads", "Block"],
        ["1", "FullyConnected", "float32[2, 8]", "data, weight, bias", "0"],
        ["2", "FullyConnected", "float32[2, 8]", "#1, weight, bias", "1.body"],
        ["3", "broadcast_add", "float32[2, 8]", "#1, #2", "1"],
        ["4", "relu", "float32[2, 8]", "#3", "1"],
    ]


def test_a_long_table_is_cut_and_the_prologue_is_left_out():
    html = picture_html(reply([Residual() for _ in range(80)]), "net")
    assert "240 operators as a table" in html
    assert len(listed(html)) == 102 and listed(html)[-1] == ["and 140 more operators"]
    graph = reply([nn.Dense(8), nn.BatchNorm()])
    assert any(box["kind"] == "prologue" for box in graph["boxes"])
    assert [line[1] for line in listed(picture_html(graph, "net"))] == ["operator", "FullyConnected"]


# -- in notebooks ------------------------------------------------------------------------------------------------------

CELLS = """import hybrid_lab as mx
from hybrid_lab.gluon import nn
net = nn.HybridSequential()
net.add(nn.Dense(4, activation="relu"), nn.Dense(2))
net.initialize()
net.hybridize()
net(mx.nd.ones((2, 3)));"""


def test_an_executed_notebook_shows_tree_and_picture_without_kernel_and_script(tmp_path):
    """As `jupyter nbconvert --execute --to html` makes it."""
    pytest.importorskip("anywidget")
    nbconvert, nbclient = pytest.importorskip("nbconvert"), pytest.importorskip("nbclient")
    import nbformat

    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in (CELLS, "mx.view(net)")]
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, kernel_name="python3", resources=resources).execute()
    (output,) = notebook.cells[1].outputs
    assert set(output["data"]) == {"text/plain", "text/html"}
    assert "widgets" not in notebook.metadata  # the state of a widget that nobody sees
    page, _ = nbconvert.HTMLExporter().from_notebook_node(notebook)
    assert "data:image/svg+xml," in page and "Graph of net: predict (2, 3)" in page and "Dense(4 -&gt; 2" in page
    assert output["data"]["text/html"].count("<script") == 0
    left = sanitized(output["data"]["text/html"])
    assert "<b>net</b>: HybridSequential" in left and "Dense(4 -&gt; 2" in left  # the tree
    operators = [line[1] for line in listed(output["data"]["text/html"])]
    assert operators == ["operator", "FullyConnected", "Activation", "FullyConnected"]


def test_a_page_gets_the_widget_with_its_html(namespace):
    pytest.importorskip("anywidget")
    from hybrid_lab.lab.kernel.session import Session
    from hybrid_lab.lab.views.widget import OUTPUT, WIDGET, make_view
    from tests.lab.conftest import Page, inputs, make_net

    session = Session(lambda: namespace)
    net = namespace["net"] = make_net(called=False)
    shown = make_view(net, session)
    data, _ = shown._repr_mimebundle_()
    assert {WIDGET, OUTPUT, "text/html", "text/plain"} <= set(data)
    assert data[OUTPUT] == {"view": shown.model_id, "model": shown.model}
    page = Page(session)
    before = page.ok("static", view=shown.model_id)["html"]
    assert before == data["text/html"]
    net(inputs())
    after = page.ok("static", view=shown.model_id)["html"]
    assert after != before and "predict" in after
    assert page.error("static", view="another")["code"] == "unknown-model"


def test_a_picture_of_an_older_graph_is_dropped(namespace):
    pytest.importorskip("anywidget")
    from hybrid_lab.lab.kernel.session import Session
    from hybrid_lab.lab.views.widget import make_view
    from tests.lab.conftest import inputs, make_net

    net = namespace["net"] = make_net()
    shown = make_view(net, Session(lambda: namespace))
    shown.svg = '<svg><path d="M1 1"/></svg>'
    assert "M1 1" in shown.static_html()
    net(inputs(7))
    assert "M1 1" not in shown.static_html() and shown.svg == ""
