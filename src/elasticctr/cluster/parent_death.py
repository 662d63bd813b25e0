"""Runs in front of a role and becomes it: first asks the kernel to kill this process when its supervisor dies.

Run as a script, with as little of Python as possible, because every start of a role waits for it:
`python -I -S parent_death.py SUPERVISOR_PID PROGRAM ARGUMENT…`. The request outlives exec, so no process stays in
between.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the request was made
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    supervisor, command = int(sys.argv[1]), sys.argv[2:]
    die_with_parent(supervisor)
    try:
        os.execvp(command[0], command)
    except OSError as e:
        sys.stderr.write(f"{command[0]}: cannot be started: {e.strerror}\n")
        os._exit(127)


if __name__ == "__main__":
    main()
