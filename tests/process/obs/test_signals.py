"""A signal reaches the waiting thread, whichever thread the kernel delivers it to."""

from __future__ import annotations

import signal
import subprocess
import sys

from elasticctr.obs.signals import Signals

CODE = """
import os, signal, threading, time
stop = threading.Event()
threading.Thread(target=stop.wait, daemon=True).start()  # there before the signals are: would be given them
from elasticctr.obs.signals import Signals
signals = Signals(signal.SIGTERM, signal.SIGHUP)
assert signals.wait(0) is None
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})  # this thread cannot take them
os.kill(os.getpid(), signal.SIGHUP)
os.kill(os.getpid(), signal.SIGTERM)
assert {signals.wait(60), signals.wait(60)} == {signal.SIGHUP, signal.SIGTERM}
began = time.monotonic()
assert signals.wait(0.2) is None and time.monotonic() - began >= 0.2
print("ready", flush=True)
print(signals.wait(60), flush=True)
"""


def test_what_was_before_comes_back() -> None:
    handler, wakeup_fd = signal.getsignal(signal.SIGHUP), signal.set_wakeup_fd(-1)
    try:
        with Signals(signal.SIGHUP):
            pass
        assert signal.getsignal(signal.SIGHUP) == handler and signal.set_wakeup_fd(-1) == -1
    finally:
        signal.set_wakeup_fd(wakeup_fd)


def test_signals_of_other_threads_are_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGTERM)
            assert process.stdout.readline() == f"{int(signal.SIGTERM)}\n"
            assert process.wait(60) == 0
        finally:
            process.kill()
