"""The loop of a benchmark's worker process: answers JSON requests on standard input, one line each.

Also read by the real MXNet's older Python.
"""

import json
import re
import statistics
import sys
import time
from pathlib import Path


def serve(calls):
    """Answer until standard input ends. calls : {"infer": function, "train": function}, each of which returns when its
    work is done.

    {"do": "first", "mode": m} : seconds of one call
    {"do": "time", "mode": m, "seconds": s} : [median ms, runs, slowest ms]
    {"do": "memory"} : the process's peak memory in MiB
    """
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "memory":
            # Not getrusage: its maximum includes the process that started this one.
            answer = int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]) / 1024
        elif request["do"] in calls:
            answer = calls[request["do"]]()
        else:
            call = calls[request["mode"]]
            start = time.perf_counter()
            call()
            answer = time.perf_counter() - start
            if request["do"] == "time":
                times, end = [], start + request["seconds"]
                while not times or (time.perf_counter() < end and len(times) < 1000):
                    start = time.perf_counter()
                    call()
                    times.append((time.perf_counter() - start) * 1e3)
                answer = [statistics.median(times), len(times), max(times)]
        print(json.dumps(answer), file=answers, flush=True)
