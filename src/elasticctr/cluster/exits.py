"""The meaning of an exit status, and whether restarting the same process could help."""

from __future__ import annotations

import signal
from typing import Final

from elasticctr.errors import DeadlineExceeded, ElasticCTRError, InternalError, Unavailable, class_of_exit

# After any other error of the tree, the same command with the same files would end the same way.
_PASSING: Final[tuple[type[ElasticCTRError], ...]] = (Unavailable, DeadlineExceeded, InternalError)
_OF_SHELLS: Final = {2: "wrong usage", 126: "the program is not executable", 127: "the program was not found"}


def is_worth_another_try(status: int) -> bool:
    """Whether a process that ended like this is started again: not after success, nor after a mistake that stays."""
    return status != 0 and status not in _OF_SHELLS and class_of_exit(status) in _PASSING


def explain_exit(status: int) -> str:
    """`status` as from subprocess: negative for a signal. Shells and mpirun report a signal as 128 + n."""
    if status == 0:
        return "ended normally"
    number = -status if status < 0 else status - 128 if status > 128 else None
    if number is not None:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"was killed by {name}{hint}"
    kind = class_of_exit(status)
    name = kind.__name__ if kind.exit_status == status else _OF_SHELLS.get(status, "an unexpected error")
    return f"exited with status {status} ({name})"
