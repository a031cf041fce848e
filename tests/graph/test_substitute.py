"""Graph.substitute: values of a graph in place of others."""

import numpy as np

from tests.graph.building import evaluate, graph_of


def test_one_of_several_outputs_is_replaced():
    def function(F, x, y):
        left, right = F.split(x, num_outputs=2, axis=1)
        return left * 2 + right + y * 0

    graph = graph_of(function, (2, 4), (2, 2))
    [split] = [node for node in graph.operators if len(node.outputs) == 2]
    replaced = graph.substitute({split.outputs[0]: graph.inputs[1]})
    x, y = np.arange(8, dtype="float32").reshape(2, 4), np.full((2, 2), 10, "float32")
    [result] = evaluate(replaced, [x, y])
    np.testing.assert_array_equal(result, y * 2 + x[:, 2:])
