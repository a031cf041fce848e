"""Pictures of graphs as data: nodes, boxes, programs, and what overlays measure on them."""
