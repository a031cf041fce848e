"""A real kernel for the tests, and a page that talks to it as JupyterLab does: one comm, on a subshell of its own."""

from __future__ import annotations

import itertools
import os
import sys
import time
import uuid
from queue import Empty
from typing import Any

from jupyter_client.manager import KernelManager

from hybrid_lab.lab.messages.connection import PROTOCOL

PATIENCE = 60


class Kernel:
    """A running ipykernel; its folder is `folder`."""

    def __init__(self, folder, *arguments):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("HYBRID_LAB", "JUPYTER"))}
        environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"}
        environment |= {"IPYTHONDIR": str(folder / ".ipython"), "JUPYTER_RUNTIME_DIR": str(folder / ".runtime")}
        self.folder = folder
        self.manager = KernelManager(kernel_name="python3")
        self.manager.kernel_spec.argv[:] = [
            *(sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", *arguments)
        ]
        self.manager.start_kernel(cwd=str(folder), env=environment)
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=PATIENCE)
        self.heard: list[dict[str, Any]] = []
        self.number = 0  # n of the In[n] of the cell that ended last

    def stop(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    # -- cells --------------------------------------------------------------------------------------------------------

    def start(self, code, cell_id=None):
        """Send a cell; the id of its message."""
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        message = self.client.session.msg("execute_request", content | {"stop_on_error": False})
        message["metadata"] = {"cellId": cell_id} if cell_id else {}
        self.client.shell_channel.send(message)
        return message["header"]["msg_id"]

    def finish(self, identity):
        """What the cell printed, once it ended; an error in it is raised."""
        until = time.monotonic() + PATIENCE
        while True:
            assert time.monotonic() < until, "the cell runs too long"
            reply = self.client.get_shell_msg(timeout=PATIENCE)
            if reply["parent_header"].get("msg_id") == identity:
                break
        self.listen(lambda: any(_is_idle(message, identity) for message in self.heard))
        self.number = reply["content"]["execution_count"]
        mine = [message for message in self.heard if _is_stream(message, identity)]
        if reply["content"]["status"] != "ok":
            raise AssertionError("\n".join(reply["content"].get("traceback", [])) or str(reply["content"]))
        return "".join(m["content"]["text"] for m in mine if m["content"]["name"] == "stdout")

    def run(self, *cells):
        """What the last of these cells printed."""
        return [self.finish(self.start(cell)) for cell in cells][-1].strip()

    def running(self, identity):
        """Whether the cell did not end yet, as far as it is heard."""
        self.listen(lambda: False, seconds=0.01)
        return not any(_is_idle(message, identity) for message in self.heard)

    def wait_for_output(self, identity, text):
        """Until this cell printed this."""
        self.listen(lambda: any(_is_stream(m, identity) and text in m["content"]["text"] for m in self.heard))

    def wait_for_more_output(self, identity, text):
        """Until this cell printed this once more, after all that was heard."""
        heard = len(self.heard)
        self.listen(lambda: any(_is_stream(m, identity) and text in m["content"]["text"] for m in self.heard[heard:]))

    def listen(self, enough, seconds=PATIENCE):
        """Collect what the kernel publishes until it is enough."""
        until = time.monotonic() + seconds
        while not enough():
            try:
                self.heard.append(self.client.get_iopub_msg(timeout=max(until - time.monotonic(), 0.01)))
            except Empty:
                pass
            if time.monotonic() >= until:
                assert seconds < 1, "the kernel said nothing of that"
                return

    # -- pages --------------------------------------------------------------------------------------------------------

    def subshell(self):
        """A new subshell, or None where the kernel has none."""
        features = self.client.kernel_info(reply=True, timeout=PATIENCE)["content"].get("supported_features", [])
        if "kernel subshells" not in features:
            return None
        message = self.client.session.msg("create_subshell_request")
        self.client.control_channel.send(message)
        while True:
            reply = self.client.get_control_msg(timeout=PATIENCE)
            if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                return reply["content"]["subshell_id"]

    def page(self, with_subshell=True):
        return Page(self, self.subshell() if with_subshell else None)


class Page:
    """One comm to the lab."""

    def __init__(self, kernel, subshell):
        self.kernel, self.subshell, self.comm = kernel, subshell, uuid.uuid4().hex
        self._numbers = itertools.count(1)
        self._send("comm_open", {"comm_id": self.comm, "target_name": "hybrid_lab", "data": {}})

    def _send(self, kind, content):
        message = self.kernel.client.session.msg(kind, content)
        if self.subshell is not None:
            message["header"]["subshell_id"] = self.subshell
        self.kernel.client.shell_channel.send(message)

    def start(self, kind, **body):
        """Send a request; its id."""
        identity = f"r{next(self._numbers)}"
        data = {
            "hybrid_lab": PROTOCOL, "kernel_id": self.kernel_id, "id": identity, "type": kind, "body": body,
        }  # fmt: skip
        self._send("comm_msg", {"comm_id": self.comm, "data": data})
        return identity

    @property
    def kernel_id(self):
        """Of the kernel that answered `hello`; "" before."""
        bodies = [message["body"] for message in self.messages if message["type"] == "ok"]
        return next((body["kernel_id"] for body in bodies if "kernel_id" in body), "")

    @property
    def messages(self):
        """All envelopes that came so far."""
        heard = [message for message in self.kernel.heard if message["msg_type"] == "comm_msg"]
        return [message["content"]["data"] for message in heard if message["content"]["comm_id"] == self.comm]

    def replies(self, identity):
        return [m for m in self.messages if m["id"] == identity and m["type"] in ("ok", "error")]

    def reply(self, identity):
        """The reply to a request, when it is there."""
        self.kernel.listen(lambda: self.replies(identity))
        return self.replies(identity)[0]

    def ask(self, kind, **body):
        return self.reply(self.start(kind, **body))

    def ok(self, kind, **body):
        reply = self.ask(kind, **body)
        assert reply["type"] == "ok", reply
        return reply["body"]

    @property
    def pushes(self):
        return [message["body"] for message in self.messages if message["type"] == "models"]

    def closed(self):
        """Whether the kernel closed the comm."""
        self.kernel.listen(lambda: False, seconds=0.3)
        heard = [message for message in self.kernel.heard if message["msg_type"] == "comm_close"]
        return any(message["content"]["comm_id"] == self.comm for message in heard)


def _is_stream(message, identity):
    return message["msg_type"] == "stream" and message["parent_header"].get("msg_id") == identity


def _is_idle(message, identity):
    return (
        message["msg_type"] == "status"
        and message["content"]["execution_state"] == "idle"
        and message["parent_header"].get("msg_id") == identity
    )
