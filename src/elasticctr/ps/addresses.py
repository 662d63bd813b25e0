"""Where roles are found: the address to tell others, and `coordinator.json`, by which roles find the coordinator.

The coordinator writes the file into the run directory once it listens. A role that was given a run directory instead
of a URL reads it, and reads it again when the coordinator stops answering: one that was placed on another machine has
another address.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

from elasticctr.errors import Corruption, Unavailable

FILE = "coordinator.json"
_EVERYWHERE = ("", "0.0.0.0", "::")


def advertised_host(host: str) -> str:
    """The host others reach this process at when it listens at `host`."""
    if host not in _EVERYWHERE:
        return host
    for name in ("ELASTICCTR_ADVERTISE", "POD_IP", "PADDLE_CURRENT_IP"):
        if os.environ.get(name):
            return os.environ[name]
    # No packet is sent: this asks which of our addresses would be used to leave the machine.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def write_coordinator(run_dir: str | Path, url: str, incarnation: int) -> None:
    """Says where the coordinator listens. Whole or not at all; a later incarnation replaces it."""
    path = Path(run_dir) / FILE
    part = path.with_name(f".{FILE}.{os.getpid()}")
    about = {"url": url, "incarnation": incarnation, "host": socket.gethostname(), "pid": os.getpid()}
    part.write_text(json.dumps(about), encoding="utf-8")
    part.replace(path)


def find_coordinator(where: str | Path) -> str:
    """The coordinator's URL: `where` itself, or what the run directory `where` says. Unavailable until it says so."""
    text = str(where)
    if text.startswith(("http://", "https://")):
        return text.rstrip("/")
    path = Path(text) / FILE
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        url = about["url"]
    except FileNotFoundError:
        raise Unavailable(f"{path}: the coordinator has not started yet", retry_after_s=0.2) from None
    except (OSError, UnicodeDecodeError) as e:
        raise Unavailable(f"{path}: cannot be read: {e}", retry_after_s=1.0) from None
    except (ValueError, KeyError, TypeError):
        raise Corruption(f"{path}: does not say where the coordinator is; remove it and start the job again") from None
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise Corruption(f"{path}: {url!r} is no address of a coordinator; remove it and start the job again")
    return url.rstrip("/")
