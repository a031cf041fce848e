"""What holds for every picture of a graph."""

from hybrid_lab.lab.picture.boxes import LARGEST


def operators(reply):
    """The operators of a picture."""
    return [node for node in reply["nodes"] if node["kind"] == "operator"]


def boxes_around(reply, member):
    """The boxes around a node or a box, from the innermost on."""
    boxes = {box["id"]: box for box in reply["boxes"]}
    found, identity = [], member["box"] if "box" in member else member["parent"]
    while identity:
        found.append(boxes[identity])
        identity = boxes[identity]["parent"]
    return found


def check_picture(reply, graph=None):
    """Check ids, the tree of boxes, sizes of layers, edges and counts. graph : whose operators must all be there"""
    boxes, nodes = {box["id"]: box for box in reply["boxes"]}, {node["id"]: node for node in reply["nodes"]}
    assert len(boxes) == len(reply["boxes"]) and len(nodes) == len(reply["nodes"]) and not boxes.keys() & nodes.keys()
    seen, members, inside = {""}, {}, dict.fromkeys(boxes, 0)
    for box in reply["boxes"]:
        assert box["parent"] in seen, "parents come before their children"
        seen.add(box["id"])
        members.setdefault(box["parent"], []).append(box)
    for node in reply["nodes"]:
        assert node["box"] in seen
        members.setdefault(node["box"], []).append(node)
        for read in node["inputs"]:
            assert 0 <= read["output"] < len(nodes[read["node"]]["outputs"])
        if node["kind"] == "operator":
            for box in boxes_around(reply, node):
                inside[box["id"]] += 1
    assert max(map(len, members.values()), default=0) <= LARGEST
    assert inside == {box["id"]: box["operators"] for box in reply["boxes"]}
    assert all(members.get(box) for box in boxes), "no box is empty"
    for box in reply["boxes"]:
        if box["kind"] == "fold":
            assert box["copies"] == len(copies(box["id"], members)) > 1
        elif box["kind"] == "block":
            assert box["block"] is None or box["class"]
    if graph is not None:
        assert sorted(node["op"] for node in operators(reply)) == sorted(node.op.name for node in graph.operators)


def copies(fold, members):
    """The Blocks in a fold, which may stand in parts of it."""
    return [
        copy
        for member in members[fold]
        for copy in (copies(member["id"], members) if member["kind"] == "part" else [member])
    ]
