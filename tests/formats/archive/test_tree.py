"""The tree of Blocks in an archive: sharing and depth are bounded, whatever a file says."""

import pytest

from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.formats.archive import tree


def levels(depth, names):
    """Blocks one below the other; each has the next one as its child under all of the names."""
    blocks = [
        {
            "id": number,
            "path": ".".join([names[0]] * number),
            "class": "HybridSequential",
            "prefix": f"level{number}_",
            "kind": "hybrid",
            "children": [[name, number + 1] for name in names] if number < depth else [],
        }
        for number in range(depth + 1)
    ]
    return {"blocks": blocks, "parameters": {}}


@pytest.mark.parametrize(("depth", "names", "places"), [(100, ["a"], 101), (8, ["a", "b"], 2**9 - 1)])
def test_deep_and_shared_blocks_are_read(depth, names, places):
    found = tree.from_json(levels(depth, names), "m.hlab")
    assert len(found.blocks) == depth + 1 and len(list(found.places())) == places


@pytest.mark.parametrize(
    ("depth", "names", "reason"),
    [(250, ["a"], "nested too deeply"), (14, ["a", "b"], "shares blocks too often")],
)
def test_a_tree_without_end_is_refused(depth, names, reason):
    with pytest.raises(ArchiveError, match=reason):
        tree.from_json(levels(depth, names), "m.hlab")
