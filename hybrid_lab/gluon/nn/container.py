"""Sequential and HybridSequential: blocks called one after the other."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from hybrid_lab.ops.framework.protocols import Functions, Tensor

from ..block import Block
from ..hybrid import HybridBlock
from .registry import layer


class Stack(Block):
    """Base of containers: adding, indexing, counting."""

    _is_container = True

    def add(self, *blocks: Block) -> None:
        """Append blocks, named '0', '1' ..."""
        for block in blocks:
            self.register_child(block)

    def __getitem__(self, key: int | slice) -> Any:
        """One block, or for a slice a container with the same blocks and prefix."""
        chosen = list(self._children.values())[key]
        if not isinstance(chosen, list):
            return chosen
        part = type(self)(prefix=self._prefix)
        part.add(*chosen)
        return part

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Block]:
        return iter(list(self._children.values()))

    def __bool__(self) -> bool:
        return True


@layer
class Sequential(Stack):
    """Calls its blocks one after the other; they may be plain Blocks.

    net = nn.Sequential()
    with net.name_scope():
        net.add(nn.Dense(10, activation="relu"), nn.Dense(20))
    """

    def forward(self, x: Any) -> Any:
        for block in self._children.values():
            x = block(x)
        return x

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Hybridize the blocks inside, each on its own."""
        if active and self._children and all(isinstance(child, HybridBlock) for child in self._children.values()):
            warnings.warn(
                f"all blocks in the Sequential {self.name!r} are HybridBlocks: "
                "as a HybridSequential they would become one graph",
                stacklevel=2,
            )
        super().hybridize(active, **kwargs)


@layer
class HybridSequential(Stack, HybridBlock):
    """Calls its HybridBlocks one after the other; hybridized, they become one graph.

    ```python
    net = nn.HybridSequential()
    net.add(nn.Dense(8, activation="relu"), nn.Dense(2))
    net.initialize()
    net(nd.ones((4, 3))).shape
    ```
    """

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        for block in self._children.values():
            x = block(x)
        return x
