"""The meaning of an exit status, and whether restarting the same process could help."""

from __future__ import annotations

import signal
from typing import Final

from elasticctr import errors

# The same command with the same files would end the same way.
_FOR_GOOD: Final = {
    cls.exit_status: cls.__name__
    for cls in (
        errors.ConfigError,
        errors.DataError,
        errors.NotFound,
        errors.AlreadyExists,
        errors.Corruption,
        errors.FailedPrecondition,
        errors.Unauthorized,
    )
} | {2: "wrong usage", 126: "the program is not executable", 127: "the program was not found"}
_PASSING: Final = {
    cls.exit_status: cls.__name__ for cls in (errors.Unavailable, errors.DeadlineExceeded, errors.InternalError)
}


def is_worth_another_try(status: int) -> bool:
    """Whether to restart a process that ended like this: not after success, nor after a permanent error."""
    return status != 0 and status not in _FOR_GOOD


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
    name = _FOR_GOOD.get(status) or _PASSING.get(status) or "an unexpected error"
    return f"exited with status {status} ({name})"
