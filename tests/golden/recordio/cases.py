"""The records that both packages write."""

import struct

MAGIC = struct.pack("<I", 0xCED7230A)


def records():
    """Records of all lengths modulo four, and with the magic number at multiples of four and elsewhere."""
    return [
        b"",
        b"a",
        b"four",
        b"five.",
        MAGIC,
        MAGIC + MAGIC,
        b"x" + MAGIC + b"yz",
        b"1234" + MAGIC + b"56" + MAGIC + b"78" + MAGIC,
        MAGIC[:3] + MAGIC,
        bytes(range(256)) * 3,
    ]
