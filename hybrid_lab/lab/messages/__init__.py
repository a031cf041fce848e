"""The messages of the protocol (docs/protocol.md) as types, a file for each subject: the one source of both sides.

The kernel checks requests against these types and builds replies of them; `requests.py` lists them all.
`scripts/write_protocol.py` writes the front end's half, `extension/src/protocol/messages.ts`, from them: the types, and
a check for everything that the kernel sends.
"""
