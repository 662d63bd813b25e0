"""Asks the kernel to kill this process when its supervisor dies, then becomes the role's process.

Run as a script that loads as little of Python as possible, because every start of a role waits for it:
`python -I -S parent_death.py SUPERVISOR_PID PROGRAM ARGUMENT…`. The request survives exec, so no process stays in
between.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the supervisor died before the request
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    supervisor, command = int(sys.argv[1]), sys.argv[2:]
    die_with_parent(supervisor)
    try:
        os.execvp(command[0], command)
    except OSError as e:
        sys.stderr.write(f"{command[0]}: cannot start: {e.strerror}\n")
        os._exit(127)


if __name__ == "__main__":
    main()
