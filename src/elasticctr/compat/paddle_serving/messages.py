"""The messages of Paddle Serving's configuration files, with the fields of all its generations.

Names and defaults are theirs (server_configure.proto, sdk_configure.proto, general_model_config.proto).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from elasticctr.compat.paddle_serving.binding import Bound

SparseServiceType = Literal["NONE", "LOCAL", "REMOTE"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineDesc(Bound):
    """engines of model_toolkit.prototxt"""

    name: str
    type: str
    reloadable_meta: str | None = None
    reloadable_type: str | None = None
    model_data_path: str | None = None
    model_dir: str | None = None
    gpu_ids: tuple[int, ...] = ()
    version_file: str | None = None
    version_type: str | None = None
    runtime_thread_num: int = 0
    batch_infer_size: int = 0
    enable_batch_align: int = 0
    sparse_param_service_type: SparseServiceType = "NONE"
    sparse_param_service_table_name: str | None = None
    enable_memory_optimization: bool = False
    static_optimization: bool = False
    force_update_static_cache: bool = False
    enable_ir_optimization: bool = False
    use_trt: bool = False
    use_lite: bool = False
    use_xpu: bool = False
    use_gpu: bool = False
    combined_model: bool = False
    encrypted_model: bool = False
    gpu_multi_stream: bool = False
    use_ascend_cl: bool = False
    use_ipu: bool = False
    ipu_cfg_file: str | None = None
    gpu_memory_mb: int = 100
    cpu_math_thread_num: int = 1
    trt_workspace_size: int = 33554432
    trt_use_static: bool = False
    enable_overrun: bool = False
    allow_split_request: bool = True
    min_subgraph_size: int = 3
    min_input_shape: dict[str, str] = field(default_factory=dict)
    max_input_shape: dict[str, str] = field(default_factory=dict)
    opt_input_shape: dict[str, str] = field(default_factory=dict)
    enable_dist_model: bool = False
    dist_carrier_id: str = "inference"
    dist_cfg_file: str | None = None
    dist_nranks: int = 0
    dist_endpoints: tuple[str, ...] = ()
    dist_subgraph_index: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelToolkit(Bound):
    """model_toolkit.prototxt"""

    engines: tuple[EngineDesc, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Resource(Bound):
    """resource.prototxt"""

    model_toolkit_path: tuple[str, ...] = ()
    model_toolkit_file: tuple[str, ...] = ()
    general_model_path: tuple[str, ...] = ()
    general_model_file: tuple[str, ...] = ()
    cube_config_path: str | None = None
    cube_config_file: str | None = None
    cube_quant_bits: int = 0
    cube_cache_path: str | None = None
    auth_product_name: str | None = None
    auth_container_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Dependency(Bound):
    """dependencies of a node"""

    name: str
    mode: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Node(Bound):
    """nodes of a workflow"""

    name: str
    type: str
    address: tuple[str, ...] = ()
    dependencies: tuple[Dependency, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Workflow(Bound):
    """workflows of workflow.prototxt"""

    name: str
    workflow_type: str
    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Workflows(Bound):
    """workflow.prototxt"""

    workflows: tuple[Workflow, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class MappedWorkflow(Bound):
    """value_mapped_workflows of a service"""

    request_field_value: str
    workflow: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Service(Bound):
    """services of service.prototxt"""

    name: str
    merger: str | None = None
    enable_map_request_to_workflow: bool = False
    request_field_key: str | None = None
    value_mapped_workflows: tuple[MappedWorkflow, ...] = ()
    workflows: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Services(Bound):
    """service.prototxt"""

    port: int | None = None
    services: tuple[Service, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable(Bound):
    """a variable of a general model"""

    name: str = ""
    alias_name: str = ""
    is_lod_tensor: bool = False
    feed_type: int = 0
    fetch_type: int = 0
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneralModel(Bound):
    """general_model.prototxt"""

    feed_var: tuple[Variable, ...] = ()
    fetch_var: tuple[Variable, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionConf(Bound):
    """connection_conf"""

    connect_timeout_ms: int = 2000
    rpc_timeout_ms: int = 20000
    connect_retry_count: int = 2
    max_connection_per_host: int = 100
    hedge_request_timeout_ms: int = -1
    hedge_fetch_retry_count: int = 2
    connection_type: str = "pooled"


@dataclass(frozen=True, kw_only=True, slots=True)
class Naming(Bound):
    """naming_conf"""

    cluster_filter_strategy: str = "Default"
    load_balance_strategy: str = "la"
    cluster: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RpcParameter(Bound):
    """rpc_parameter"""

    compress_type: int = 0
    package_size: int = 20
    protocol: str = "baidu_std"
    max_channel_per_request: int = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Split(Bound):
    """split_conf"""

    split_tag_name: str | None = None
    tag_candidates: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictorVariant(Bound):
    """a variant of predictors.prototxt"""

    tag: str
    connection_conf: ConnectionConf | None = None
    naming_conf: Naming | None = None
    rpc_parameter: RpcParameter | None = None
    split_conf: Split | None = None
    variant_router: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightedRandomRender(Bound):
    """weighted_random_render_conf"""

    variant_weight_list: str = "50"


@dataclass(frozen=True, kw_only=True, slots=True)
class Predictor(Bound):
    """predictors of predictors.prototxt"""

    name: str = "general_model"
    service_name: str = "baidu.paddle_serving.predictor.general_model.GeneralModelService"
    endpoint_router: str = "WeightedRandomRender"
    weighted_random_render_conf: WeightedRandomRender | None = None
    variants: tuple[PredictorVariant, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Predictors(Bound):
    """predictors.prototxt"""

    default_variant_conf: PredictorVariant | None = None
    predictors: tuple[Predictor, ...] = ()
