"""The graph room: immutable typed graphs and the passes over them."""

from hybrid_lab.graph.builder import Builder, Expr
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value, constant_node, input_node

__all__ = ["Builder", "Constant", "Expr", "Graph", "Input", "Node", "Value", "constant_node", "input_node"]
