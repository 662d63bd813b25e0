"""Settings of Paddle Serving that have no meaning here, and why. Readers of a file report them to the user."""

from __future__ import annotations

from collections.abc import Mapping

from elasticctr.compat.paddle_serving.binding import Bound

_GPU = "predictions run on the CPU"
_GRAPH = "the dense graph runs in ONNX Runtime, which optimises it when it is loaded"
_BATCH = "requests are never split or padded; a micro-batch takes the requests that wait"
_PLAIN = "versions are read as they are published"

ENGINE: Mapping[str, str] = {
    "type": "",  # FLUID_CPU_…, PADDLE_INFER: reported only if it asks for a GPU
    "gpu_ids": _GPU,
    "use_gpu": _GPU,
    "gpu_multi_stream": _GPU,
    "gpu_memory_mb": _GPU,
    "use_trt": _GPU,
    "trt_workspace_size": _GPU,
    "trt_use_static": _GPU,
    "use_lite": _GPU,
    "use_xpu": _GPU,
    "use_ascend_cl": _GPU,
    "use_ipu": _GPU,
    "ipu_cfg_file": _GPU,
    "version_file": "versions are announced by the repository's donefile",
    "version_type": "versions are announced by the repository's donefile",
    "enable_batch_align": _BATCH,
    "enable_overrun": _BATCH,
    "allow_split_request": _BATCH,
    "enable_memory_optimization": _GRAPH,
    "static_optimization": _GRAPH,
    "force_update_static_cache": _GRAPH,
    "enable_ir_optimization": _GRAPH,
    "min_subgraph_size": _GRAPH,
    "min_input_shape": _GRAPH,
    "max_input_shape": _GRAPH,
    "opt_input_shape": _GRAPH,
    "cpu_math_thread_num": "a micro-batch is scored by one thread; --threads sets how many work at once",
    "combined_model": _PLAIN,
    "encrypted_model": _PLAIN,
    "enable_dist_model": "one process holds the whole dense graph",
    "dist_carrier_id": "one process holds the whole dense graph",
    "dist_cfg_file": "one process holds the whole dense graph",
    "dist_nranks": "one process holds the whole dense graph",
    "dist_endpoints": "one process holds the whole dense graph",
    "dist_subgraph_index": "one process holds the whole dense graph",
}

RESOURCE: Mapping[str, str] = {
    "cube_quant_bits": "every version has its own encoding of rows",
    "cube_cache_path": "a Cube's cache is set in cube.yaml (cache_bytes)",
    "auth_product_name": "clients show a token (--token-file)",
    "auth_container_id": "clients show a token (--token-file)",
}

GFLAGS: Mapping[str, str] = {
    "enable_model_toolkit": "",
    "enable_general_model": "",
    "enable_cube": "",
    "enable_protocol_list": "HTTP and bRPC are on one port, gRPC on --grpc-port",
    "max_concurrency": "",
    "bthread_concurrency": "`threads` and `loops` say how many threads there are",
    "bthread_min_concurrency": "`threads` and `loops` say how many threads there are",
    "idle_timeout_s": "idle connections are closed after 75 s (HTTP) or 600 s (bRPC)",
    "gpuid": _GPU,
    "log_dir": "messages go to stderr, requests to --access-log",
    "enable_prometheus": "metrics are always enabled: GET /metrics on the same port",
    "prometheus_port": "metrics are on the same port: GET /metrics",
    "request_cache_size": "answers are not cached",
}

CONNECTION: Mapping[str, str] = {
    "connection_type": "connections are kept open and reused",
    "hedge_fetch_retry_count": "hedged requests count as retries",
}

RPC: Mapping[str, str] = {
    "compress_type": "requests are not compressed",
    "package_size": "samples are sent in batches of --batch",
    "max_channel_per_request": "a request goes to one server",
    "protocol": "",
}

VARIANT: Mapping[str, str] = {
    "split_conf": "requests are not split by a tag; a server's variants can be sticky by a field",
    "variant_router": "variants are chosen by weight",
}


def ignored(bound: Bound, reasons: Mapping[str, str]) -> list[str]:
    """A message for each given field that has no meaning here."""
    return [f"{bound.where(name)}: {name} is ignored: {reasons[name]}" for name in bound.given if reasons.get(name, "")]
