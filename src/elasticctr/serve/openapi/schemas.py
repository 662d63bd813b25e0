"""Bodies of requests and answers, and the meaning of each error status, for document.py."""

from __future__ import annotations

from typing import Any

ERRORS = {
    400: "the request is not as described here",
    401: "missing or wrong token",
    404: "no such model or version",
    409: "it already exists",
    412: "not possible in this state",
    413: "the body, or the number of samples or values, is over its limit",
    415: "the body is compressed, but not with gzip",
    429: "too many requests are waiting; Retry-After says when to try again",
    500: "a bug, or damaged files of the version",
    503: "not ready, or rows are not available; try again",
    504: "it took longer than allowed",
}


def _object(
    properties: dict[str, Any], required: tuple[str, ...] | None = None, others: bool | dict[str, Any] = False
) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties if required is None else required),
        "additionalProperties": others,
    }


def _list(items: dict[str, Any], shortest: int = 0) -> dict[str, Any]:
    return {"type": "array", "items": items, **({"minItems": shortest} if shortest else {})}


def _ref(schema: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{schema}"}


_TEXT: dict[str, Any] = {"type": "string"}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_NUMBER: dict[str, Any] = {"type": "number"}
_TRUTH: dict[str, Any] = {"type": "boolean"}
_VALUE: dict[str, Any] = {
    "type": ["string", "number"],
    "description": "sparse slots: a string, or a whole number from 0 to 2^64 - 1; dense slots: a number",
}
_OPTIONS: dict[str, Any] = {
    "id": {"type": ["string", "number"], "maxLength": 256, "description": "echoed"},
    "timeout_ms": {"type": "integer", "minimum": 1, "maximum": 3_600_000},
    "ignore_unknown": {"type": "boolean", "description": "ignore slots that the model does not have"},
}
_VALUES: dict[str, Any] = {
    "values": {
        "enum": ["log", "feasigns"],
        "description": "feasigns: sparse values are already hashed, dense ones transformed",
    }
}
_FIELDS: dict[str, Any] = {"description": "any other key; sticky variants can use it"}
# Ignored slots may have values of any type.
_LENIENT: dict[str, Any] = {"ignore_unknown": {"const": True}}
_LENIENT_SAMPLE: dict[str, Any] = {"type": "object", "description": "a Sample that may have slots of other models"}


def _samples_request(sample: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    absent = dict.fromkeys(("candidates", "lines", "user", "format"), False)
    properties = {"samples": _list(sample, 1), **absent, **_VALUES, **_OPTIONS, **options}
    return _object(properties, ("samples", *options), _FIELDS)


def _candidates_request(sample: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    absent = dict.fromkeys(("samples", "lines", "format"), False)
    properties = {"user": sample, "candidates": _list(sample, 1), **absent, **_VALUES, **_OPTIONS, **options}
    return _object(properties, ("candidates", *options), _FIELDS)


SCHEMAS: dict[str, Any] = {
    "Error": _object({"error": _object({"code": _TEXT, "message": _TEXT})}),
    "KServeError": _object({"error": _TEXT}),
    "PaddleError": {"type": "object"},
    "Nothing": _object({}),
    "Description": {"type": "object"},
    "Alive": _object({"alive": _TRUTH}),
    "IsReady": _object({"ready": _TRUTH}),
    "Sample": {
        "type": "object",
        "description": "values by slot name, as in a log",
        "additionalProperties": {"anyOf": [_VALUE, _list(_VALUE), {"type": "null"}]},
    },
    "PredictRequest": {
        "anyOf": [
            _ref("SamplesRequest"),
            _ref("CandidatesRequest"),
            _ref("LinesRequest"),
            _ref("LenientSamplesRequest"),
            _ref("LenientCandidatesRequest"),
        ],
        "example": {"user": {"C1": "68fd1e64"}, "candidates": [{"C2": "a"}, {"C2": ["b", "c"], "I1": 5}]},
    },
    "SamplesRequest": _samples_request(_ref("Sample"), {}),
    "CandidatesRequest": _candidates_request(_ref("Sample"), {}),
    "LenientSamplesRequest": _samples_request(_LENIENT_SAMPLE, _LENIENT),
    "LenientCandidatesRequest": _candidates_request(_LENIENT_SAMPLE, _LENIENT),
    "LinesRequest": _object(
        {
            "lines": _list(_TEXT, 1),
            "format": {"enum": ["feasign", "slot", "criteo", "libsvm", "libffm"]},
            "samples": False,
            "candidates": False,
            "user": False,
            "values": False,
            **_OPTIONS,
        },
        ("lines",),
        _FIELDS,
    ),
    "Coverage": _object(
        {"asked": _COUNT, "found": _COUNT, "degraded": _TRUTH, "reasons": _list(_TEXT)}, ("asked", "found", "degraded")
    ),
    "Scores": _object(
        {
            "model": _TEXT,
            "version": _COUNT,
            "variant": _TEXT,
            "id": _TEXT,
            "scores": {
                "anyOf": [_list(_NUMBER), _list(_list(_NUMBER))],
                "description": "one per sample; a list per sample if the model has several labels",
            },
            "labels": _list(_TEXT),
            "coverage": _ref("Coverage"),
        },
        ("model", "version", "variant", "id", "scores", "coverage"),
    ),
    "Activate": _object({"version": {"type": "integer", "minimum": 1, "maximum": (1 << 63) - 1}}),
    "Promote": _object({"variant": _TEXT}),
    "Variants": _object({"variants": _list(_ref("Variant")), "sticky": {"type": ["string", "null"]}}, ("variants",)),
    "Variant": _object(
        {
            "name": _TEXT,
            "version": {"type": ["integer", "null"], "minimum": 1},
            "model": {"type": ["string", "null"]},
            "weight": {"type": "number", "minimum": 0},
            "shadow": _TRUTH,
        },
        ("name",),
    ),
    "ModelStatus": {
        "type": "object",
        "properties": {"name": _TEXT, "live": {"type": ["integer", "null"]}},
        "required": ["name", "live"],
    },
    "Models": _object({"models": _list(_ref("ModelStatus"))}),
    "Status": {
        "type": "object",
        "properties": {"ready": _TRUTH, "models": _list(_ref("ModelStatus"))},
        "required": ["ready", "models"],
    },
    "List": {"type": "array", "items": {"type": "object"}},
    "KServeIndex": {"type": "object", "properties": {"ready": _TRUTH}},
    "KServeTensor": {
        "type": "object",
        "properties": {"name": _TEXT, "shape": _list(_COUNT), "datatype": _TEXT, "data": {"type": "array"}},
        "required": ["name", "shape", "datatype"],
    },
    "KServeRequest": {
        "type": "object",
        "properties": {"id": _TEXT, "inputs": _list(_ref("KServeTensor"), 1)},
        "required": ["inputs"],
    },
    "KServeAnswer": {
        "type": "object",
        "properties": {
            "model_name": _TEXT,
            "model_version": _TEXT,
            "id": _TEXT,
            "outputs": _list(_ref("KServeTensor")),
        },
        "required": ["model_name", "outputs"],
    },
    "PaddleRequest": {"type": "object"},
}
