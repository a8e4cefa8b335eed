"""Run a notebook's cells in a kernel: `scripts.run_cells` starts this as a process of its own."""

import json
import sys
import threading
import time
from queue import Empty
from typing import Any

from jupyter_client.manager import start_new_kernel

CELL_SECONDS = 100


def main() -> None:
    task = json.load(sys.stdin)
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        results = []
        for number, cell in enumerate(task["cells"]):
            interrupt = manager.interrupt_kernel if number == task["interrupt"] else None
            results.append(run(client, cell, interrupt))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    json.dump(results, sys.stdout)


def run(client: Any, cell: str, interrupt: Any) -> dict[str, Any]:
    result = {"stdout": "", "stderr": "", "error": None, "traceback": "", "seconds": 0.0}
    asked = client.execute(cell)
    since = time.monotonic()
    while True:
        try:
            message = client.get_iopub_msg(timeout=CELL_SECONDS)
        except Empty:
            result["error"] = "no end"
            return result
        if message["parent_header"].get("msg_id") != asked:
            continue
        content = message["content"]
        if message["msg_type"] == "stream":
            result[content["name"]] += content["text"]
            if interrupt is not None:
                threading.Timer(1, interrupt).start()
                since = time.monotonic() + 1
                interrupt = None
        elif message["msg_type"] == "error":
            result["error"] = content["ename"]
            result["traceback"] = "\n".join(content["traceback"])
        elif message["msg_type"] == "status" and content["execution_state"] == "idle":
            result["seconds"] = time.monotonic() - since
            return result


if __name__ == "__main__":
    main()
