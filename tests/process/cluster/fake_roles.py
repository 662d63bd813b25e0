"""Stands in for `elasticctr` in tests of engines: roles that take the real flags and train nothing.

The coordinator counts `STEPS` samples up in a file, so it resumes after a kill; with `/v1/stop` it
ends as interrupted. Others run until the run directory says that all is over. `CRASH=trainer-0:19` makes a role end.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml

from elasticctr.ps.addresses import find_coordinator, write_coordinator

arguments = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=False))  # flags without value come last
run = Path(yaml.safe_load(Path(arguments["--config"]).read_text())["run_dir"])
token = Path(arguments["--token-file"]).read_text().strip()
name = arguments.get("--name", "coordinator-0")
crash, _, status = os.environ.get("CRASH", "").partition(":")
if crash == name:
    print(f"elasticctr: Reason: {name} does not want to")
    sys.exit(int(status))


def coordinate() -> None:
    stop = threading.Event()
    count = run / "count"

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({"phase": "training", "step": read(), "samples": read(), "roles": [{"name": "trainer-0"}]})

        def do_POST(self) -> None:
            stop.set()
            self._answer({})

        def _answer(self, value: object) -> None:
            is_known = self.headers["Authorization"] == f"Bearer {token}"
            self.send_response(200 if is_known else 401)
            self.end_headers()
            self.wfile.write(json.dumps(value).encode())

        def log_message(self, *_: object) -> None:
            pass

    def read() -> int:
        return int(count.read_text()) if count.exists() else 0

    def write(event: str, **more: object) -> None:
        with (run / "events.jsonl").open("a") as file:
            file.write(
                json.dumps({"event": event, "time": time.time(), "step": read(), "samples": read(), **more}) + "\n"
            )

    server = ThreadingHTTPServer((arguments["--host"], int(arguments["--port"])), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    write_coordinator(run, f"http://{arguments['--host']}:{server.server_port}", 1)
    print("arguments", *sys.argv[1:])
    while read() < int(os.environ.get("STEPS", "10")) and not stop.wait(0.02):
        count.with_suffix(".part").write_text(str(read() + 1))
        count.with_suffix(".part").replace(count)
    if not stop.is_set():
        write("eval", split="valid", auc=0.75, logloss=0.5)
    (run / "metrics.json").write_text('{"valid": {"auc": 0.75, "rows": 7, "curve": [1]}}')
    write("end", reason="interrupted" if stop.is_set() else "finished", seconds=2.0, samples_per_s=5.0)
    (run / "over").touch()
    time.sleep(float(os.environ.get("LINGER_S", "0")))


def attend() -> None:
    print("threads", os.environ.get("ELASTICCTR__TRAIN__THREADS"), flush=True)
    (run / f"{name}.pid").write_text(str(os.getpid()))
    while not (run / "over").exists():
        try:
            find_coordinator(arguments["--coordinator"])
        except Exception as e:
            print(e)
        time.sleep(0.02)


if sys.argv[1] == "coordinator":
    coordinate()
else:
    attend()
