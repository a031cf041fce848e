"""Functions called in a forked child."""

import os
import pickle
import select
import signal


def in_child(function, seconds=120):
    """What the function returns, called in a forked child; an error if it fails or does not come back in time."""
    readable, writable = os.pipe()
    child = os.fork()
    if not child:
        try:
            answer = function()
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writable, pickle.dumps(answer))
        os._exit(0)
    os.close(writable)
    answered = select.select([readable], [], [], seconds)[0]
    if not answered:
        os.kill(child, signal.SIGKILL)
    with os.fdopen(readable, "rb") as pipe:
        data = pipe.read() if answered else b""
    os.waitpid(child, 0)
    assert answered, f"the child did not come back within {seconds} s"
    return pickle.loads(data)
