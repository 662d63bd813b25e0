"""docs/reference/errors.md: what each error of elasticctr/errors.py becomes, and what to do about it."""

from __future__ import annotations

import re

import grpc

from elasticctr import _native, errors

ADVICE = {
    "ConfigError": "Correct the setting that the message names.",
    "DataError": "Look at the `path:line` in the message; `elasticctr data inspect` shows more.",
    "NotFound": "Check the path, name or version.",
    "AlreadyExists": "Use `--resume`, `--overwrite` or another directory, as the message says.",
    "Corruption": "Use an older checkpoint or version, or recreate the file.",
    "FailedPrecondition": "Use the schema, model or version it was created with, as the message says.",
    "Unauthorized": "Check the token file or the client certificate.",
    "Unavailable": "Try again later; clients of ElasticCTR do so by themselves.",
    "DeadlineExceeded": "Try again, or allow more time.",
    "InternalError": "Free disk or memory if the message says so; anything else is a bug.",
}
HEAD = """# Errors

{generated}

One set of errors covers commands, Python, the native core and every protocol. A message says what happened, to which
file, line, shard or version, and what to do next.

| error | meaning | what to do |
| --- | --- | --- |
"""
CODES = """
## Codes

| error | exit status | HTTP | gRPC |
| --- | --- | --- | --- |
"""
TAIL = """
A command exits with 0 on success, with 2 for a wrong flag or argument, and with 130 after Ctrl-C.

More specific HTTP statuses replace the ones above where they say more:

| HTTP | error | when |
| --- | --- | --- |
| 403 | Unauthorized | a command with a read token, or a [foreign page](../operations/security.md#browsers) |
| 413 | DataError | the body, or the number of samples or values, is over its limit |
| 415 | DataError | the body is compressed with anything but gzip |
| 429 | Unavailable | too many requests are waiting; `Retry-After` says when to try again |
| 431 | DataError | the head of the request is too large |

## How errors are reported

| by | form |
| --- | --- |
| a command | `elasticctr: ConfigError: …` on stderr |
| a command with `--json` | `{"error": {"code": "ConfigError", "message": "…"}}` on stdout |
| HTTP, of every server | the same JSON object; with `Retry-After` for 429 and 503 |
| KServe V2 over HTTP | `{"error": "…"}` |
| gRPC | status code and message |
| Paddle Serving, bRPC | [their own codes](../migration/paddle-serving.md) |
| Python | an exception of `elasticctr.errors`, all of them subclasses of `ElasticCTRError` |
"""


def errors_page(generated: str) -> str:
    tree = dict(re.findall(r"^[├└]── (\w+) +(.*)$", errors.__doc__ or "", flags=re.MULTILINE))
    classes = errors.ElasticCTRError.__subclasses__()
    grpc_names = {status.value[0]: status.name for status in grpc.StatusCode}
    meanings = [f"| `{c.__name__}` | {tree[c.__name__]} | {ADVICE[c.__name__]} |" for c in classes]
    codes = [
        f"| `{c.__name__}` | {c.exit_status} | {_native.http_status(c.exit_status)} "
        f"| {grpc_names[_native.grpc_status(c.exit_status)]} |"
        for c in classes
    ]
    return HEAD.format(generated=generated) + "\n".join(meanings) + "\n" + CODES + "\n".join(codes) + "\n" + TAIL
