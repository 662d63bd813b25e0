"""A separate network for some processes: a namespace joined to this machine by a virtual cable that can be made slow
or pulled. Needs root."""

from __future__ import annotations

import os
import subprocess
from types import TracebackType


class Network:
    """Processes started with `prefix` in front live at `inside`, and see this machine at `outside`."""

    def __init__(self) -> None:
        number = os.getpid() % 200 + 20
        self._name, self._cable = f"ectr{os.getpid()}", f"ec{os.getpid()}"
        self.outside, self.inside = f"10.231.{number}.1", f"10.231.{number}.2"
        self.prefix = ["ip", "netns", "exec", self._name]

    def __enter__(self) -> Network:
        self._ip("netns", "add", self._name)
        self._ip("link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self._name)
        self._ip("addr", "add", f"{self.outside}/24", "dev", self._cable)
        self._ip("link", "set", self._cable, "up")
        for words in (["addr", "add", f"{self.inside}/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
            self._ip("-n", self._name, *words)
        self._ip("-n", self._name, "link", "set", "lo", "up")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        subprocess.run(["ip", "link", "del", self._cable], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", self._name], check=False, capture_output=True)

    def slow(self, rate: str) -> None:
        """No more than `rate`, such as 2mbit, in each direction."""
        limit = ["root", "tbf", "rate", rate, "burst", "4kb", "latency", "300ms"]
        self._run("tc", "qdisc", "add", "dev", self._cable, *limit)
        self._run(*self.prefix, "tc", "qdisc", "add", "dev", "eth0", *limit)

    def full_speed(self) -> None:
        self._run("tc", "qdisc", "del", "dev", self._cable, "root")
        self._run(*self.prefix, "tc", "qdisc", "del", "dev", "eth0", "root")

    def pull(self) -> None:
        self._ip("link", "set", self._cable, "down")

    def plug(self) -> None:
        self._ip("link", "set", self._cable, "up")

    def _ip(self, *words: str) -> None:
        self._run("ip", *words)

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)


def why_not() -> str:
    """Why there are no networks here; empty if there are."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    try:
        with Network() as network:
            network.slow("1mbit")
    except FileNotFoundError as e:
        return f"no {e.filename} here"
    except subprocess.CalledProcessError as e:
        return f"{' '.join(e.cmd)}: {e.stderr.decode().strip()}"
    return ""
