"""Which part of a data set this worker reads."""

from __future__ import annotations

from typing import NamedTuple

from hybrid_lab.system.provided import Provided

joined_workers: Provided[[], tuple[int, int]] = Provided("joined_workers")


class DataPart(NamedTuple):
    """One of the parts of a data set.

    number, parts : index of this part, and the number of parts; of_workers : whether each joined worker reads one part
    """

    number: int
    parts: int
    of_workers: bool

    def slice(self, length: int) -> slice:
        """The rows that a worker reads: all workers read equally many, so that they have equally many batches. Where
        `length` does not divide evenly, some rows are read by two workers.
        """
        size = -(-length // self.parts)
        start = min(self.number * size, length - size)
        return slice(start, start + size)


def part_of(num_parts: int | None, part_index: int | None) -> DataPart:
    """The part that an iterator reads: None for both arguments gives the part of this worker among the joined
    workers.
    """
    if num_parts is None and part_index is None:
        rank, size = joined_workers()
        return DataPart(rank, size, size > 1)
    return DataPart(0 if part_index is None else part_index, 1 if num_parts is None else num_parts, False)
