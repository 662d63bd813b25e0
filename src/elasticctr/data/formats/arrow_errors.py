"""What Arrow raises while it reads a file, as errors of the tree. Full memory is not the file's fault."""

from __future__ import annotations

import errno
import os
import re

from elasticctr.errors import Corruption, ElasticCTRError, InternalError

_ASKED = re.compile(r"(?:malloc|realloc) of size (\d+) failed")
_MACHINE = (errno.ENOMEM, errno.EIO, errno.ESTALE)


def explain_arrow(error: Exception, where: str, damaged: str) -> ElasticCTRError:
    """`damaged` is what to say of a file whose bytes make no sense."""
    text = (str(error).splitlines() or [type(error).__name__])[0]
    if isinstance(error, MemoryError) and not _is_absurd(text):
        return InternalError(
            f"{where}: too little memory to read it: {text}; use smaller batches or row groups, or allow more memory"
        )
    if isinstance(error, OSError) and error.errno in _MACHINE:
        return InternalError(f"{where}: the machine failed to read it: {error.strerror or text}")
    return Corruption(f"{where}: {damaged.format(text)}")


def _is_absurd(text: str) -> bool:
    """Whether more was asked for than the machine has: a damaged length rather than a full memory."""
    asked = _ASKED.search(text)
    return asked is not None and int(asked[1]) > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
