"""Runs in front of a role and becomes it: first asks the kernel to kill this process when its supervisor dies.

Run as a script, with as little of Python as possible, because every start of a role waits for it:
`python -I -S leash.py SUPERVISOR_PID PROGRAM ARGUMENT…`. The request outlives exec, so no process stays in between.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    supervisor, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:  # it died before the request was made
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        os.execvp(command[0], command)
    except OSError as e:
        sys.stderr.write(f"{command[0]}: cannot be started: {e.strerror}\n")
        os._exit(127)


if __name__ == "__main__":
    main()
