"""Turns the arguments of `predict` into a question: checked, routed to a variant, ready for any of its endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from elasticctr.errors import ConfigError
from elasticctr.serve.client.call import Question, sticky_key
from elasticctr.serve.client.prediction import Sample, format_body, format_path
from elasticctr.serve.client.routing import Router
from elasticctr.serve.client.settings import PredictClientSettings

Asked = tuple[Iterable[Sample] | Sample | None, Sample | None, Iterable[Sample] | None, str | Iterable[str] | None]
About = tuple[str | None, int | None, str | None, str | None, Mapping[str, Any] | None, float | None]

RESERVED = frozenset(
    ("samples", "user", "candidates", "lines", "format", "values", "ignore_unknown", "id", "timeout_ms")
)
_ID = re.compile(r"[\x21-\x7e]{1,128}")


def make_question(
    router: Router, settings: PredictClientSettings, asked: Asked, options: dict[str, Any], about: About
) -> tuple[Question, float]:
    """The question and its deadline in seconds. Raises ConfigError and DataError."""
    samples, user, candidates, lines = asked
    model, version, request_id, key, fields, timeout_s = about
    if timeout_s is not None and not 0 < timeout_s <= 86_400:
        raise ConfigError(f"timeout_s must be above 0 and at most a day, not {timeout_s}")
    if request_id is not None and not _ID.fullmatch(request_id):
        raise ConfigError("id must be 1 to 128 printable ASCII characters without spaces")
    extra = dict(fields or {})
    for name in extra:
        if name in RESERVED:
            raise ConfigError(f"{name!r} cannot be one of fields; give it as an argument of predict")
    variant = router.choose_variant(sticky_key(settings, key, extra))
    path = format_path(variant.model or model or settings.model, variant.version or version)
    several = [samples] if isinstance(samples, Mapping) else samples
    body = format_body(several, user, candidates, lines, options | extra)
    timeout = settings.timeout_ms / 1000 if timeout_s is None else timeout_s
    return Question(path, body, request_id, variant), timeout
