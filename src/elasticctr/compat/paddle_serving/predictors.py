"""Converts predictors.prototxt, the configuration of Paddle Serving's clients, into our settings.

A predictor names a service and its variants; a variant is a cluster of servers (`list://host:port,host:port`) with a
share of the requests (`variant_weight_list: "50|30"`). `default_variant_conf` gives defaults for all variants.
"""

from __future__ import annotations

from pathlib import Path

from elasticctr.compat.paddle_serving import notes as why
from elasticctr.compat.paddle_serving.binding import bind
from elasticctr.compat.paddle_serving.messages import (
    ConnectionConf,
    Naming,
    Predictor,
    Predictors,
    PredictorVariant,
    RpcParameter,
)
from elasticctr.compat.paddle_serving.serving import is_our_service
from elasticctr.compat.paddle_serving.text_format import read_text_format
from elasticctr.errors import ConfigError, NotFound
from elasticctr.serve.client.settings import Balancer, EndpointSettings, PredictClientSettings, VariantSettings

BALANCERS: dict[str, Balancer] = {"rr": "round_robin", "random": "random", "la": "least_loaded"}
OTHER_BALANCERS = ("wrr", "wr", "c_murmurhash", "c_md5", "c_ketama")
ROUTER = "WeightedRandomRender"


def read_predictors(path: Path, predictor: str | None = None) -> tuple[PredictClientSettings, tuple[str, ...]]:
    """The settings of one predictor, and what could not be converted. Without a name, uses the only one whose service
    is served here."""
    file = bind(Predictors, read_text_format(path))
    chosen = _choose(file, predictor, path)
    return _PredictorsReader(file, chosen).read()


def _choose(file: Predictors, name: str | None, path: Path) -> Predictor:
    names = [one.name for one in file.predictors]
    there = f"{path} has {', '.join(names)}" if names else f"{path} has no predictors"
    if name is not None:
        for one in file.predictors:
            if one.name == name:
                return one
        raise NotFound(f"no predictor {name!r}; {there}")
    ours = [one for one in file.predictors if is_our_service(one.service_name)]
    if len(ours) != 1:
        raise ConfigError(f"give the name of a predictor: {there}")
    return ours[0]


class _PredictorsReader:
    def __init__(self, file: Predictors, predictor: Predictor) -> None:
        self._default = file.default_variant_conf
        self._predictor = predictor
        self._notes: list[str] = []

    def read(self) -> tuple[PredictClientSettings, tuple[str, ...]]:
        predictor = self._predictor
        if not predictor.variants:
            raise ConfigError(f"{predictor.where()}: predictor {predictor.name!r} has no variants")
        if not is_our_service(predictor.service_name):
            self._notes.append(
                f"{predictor.where('service_name')}: service {predictor.service_name} is not served here; requests are "
                "predictions of the model that the call names"
            )
        if predictor.endpoint_router != ROUTER:
            self._note(predictor.where("endpoint_router"), "endpoint_router", "variants are chosen by weight")
        tags = [variant.tag for variant in predictor.variants]
        if len(set(tags)) < len(tags):
            raise ConfigError(f"{predictor.where('variants')}: two variants are named {max(tags, key=tags.count)!r}")
        variants = tuple(
            VariantSettings(variant.tag, self._endpoints(variant), weight)
            for variant, weight in zip(predictor.variants, self._weights(), strict=True)
        )
        connection = self._connection()
        self._rpc()
        for variant in (*predictor.variants, *((self._default,) if self._default is not None else ())):
            self._notes += why.ignored(variant, why.VARIANT)
        hedge_ms = connection.hedge_request_timeout_ms
        try:
            settings = PredictClientSettings(
                variants=variants,
                balancer=self._balancer(),
                timeout_ms=float(connection.rpc_timeout_ms),
                connect_ms=float(connection.connect_timeout_ms),
                retries=connection.connect_retry_count,
                hedge_ms=float(hedge_ms) if hedge_ms > 0 else 0.0,
                idle_connections=connection.max_connection_per_host,
            )
        except ConfigError as e:
            raise ConfigError(f"{connection.where()}: {e}") from None
        return settings, tuple(dict.fromkeys(self._notes))

    def _note(self, where: str, name: str, reason: str) -> None:
        self._notes.append(f"{where}: {name} is ignored: {reason}")

    def _weights(self) -> list[float]:
        predictor, render = self._predictor, self._predictor.weighted_random_render_conf
        if render is None:
            return [1.0] * len(predictor.variants)
        texts = render.variant_weight_list.split("|")
        if len(texts) != len(predictor.variants):
            raise ConfigError(
                f"{render.where('variant_weight_list')}: {len(texts)} weights for {len(predictor.variants)} variants; "
                "give one for each, separated by |"
            )
        if not all(text.strip().isdigit() for text in texts) or not any(int(text) for text in texts):
            raise ConfigError(
                f"{render.where('variant_weight_list')}: {render.variant_weight_list!r}: weights must be whole "
                "numbers, not all 0"
            )
        return [float(text) for text in texts]

    def _endpoints(self, variant: PredictorVariant) -> tuple[EndpointSettings, ...]:
        naming = variant.naming_conf
        cluster = naming.cluster if naming is not None else None
        if cluster is None and self._default is not None and self._default.naming_conf is not None:
            cluster = self._default.naming_conf.cluster
        where = variant.where() if naming is None else naming.where("cluster")
        if cluster is None:
            raise ConfigError(f'{where}: variant {variant.tag!r} has no cluster; write cluster: "list://HOST:PORT"')
        if not cluster.startswith("list://"):
            raise ConfigError(
                f"{where}: cluster {cluster!r} is not of the form list://HOST:PORT,HOST:PORT, the only one supported"
            )
        endpoints = []
        for text in cluster.removeprefix("list://").split(","):
            try:
                address, *weight = text.split()
                endpoints.append(EndpointSettings(f"http://{address}", float(weight[0]) if weight else 1.0))
            except (ConfigError, ValueError) as e:
                raise ConfigError(f"{where}: in cluster {cluster!r}: {e}") from None
        return tuple(endpoints)

    def _connection(self) -> ConnectionConf:
        """Connection settings for all variants; our client has one set, so the first variant's count."""
        given = [variant.connection_conf for variant in self._predictor.variants if variant.connection_conf is not None]
        default = self._default.connection_conf if self._default is not None else None
        connection = given[0] if given else default or ConnectionConf(source=self._predictor.source)
        self._notes += why.ignored(connection, why.CONNECTION)
        for other in given[1:]:
            self._note(other.where(), "connection_conf", "all variants use that of the first one")
        return connection

    def _balancer(self) -> Balancer:
        own = [variant.naming_conf for variant in self._predictor.variants if variant.naming_conf is not None]
        default = self._default.naming_conf if self._default is not None else None
        naming = next((one for one in own if "load_balance_strategy" in one.given), default or Naming())
        name = naming.load_balance_strategy
        for one in (*own, *((default,) if default is not None else ())):
            if one.cluster_filter_strategy != "Default":
                self._note(
                    one.where("cluster_filter_strategy"),
                    "cluster_filter_strategy",
                    "every server of a cluster is used",
                )
        if name in BALANCERS:
            return BALANCERS[name]
        if name not in OTHER_BALANCERS:
            raise ConfigError(
                f"{naming.where('load_balance_strategy')}: load_balance_strategy {name!r} is none of "
                f"{', '.join((*BALANCERS, *OTHER_BALANCERS))}"
            )
        self._notes.append(f"{naming.where('load_balance_strategy')}: load_balance_strategy {name} is treated as rr")
        return "round_robin"

    def _rpc(self) -> None:
        own = [variant.rpc_parameter for variant in self._predictor.variants if variant.rpc_parameter is not None]
        if self._default is not None and self._default.rpc_parameter is not None:
            own.append(self._default.rpc_parameter)
        for rpc in own:
            self._notes += why.ignored(_interesting(rpc), why.RPC)
            if rpc.protocol != "baidu_std":
                self._note(rpc.where("protocol"), "protocol", "the client speaks JSON over HTTP")


def _interesting(rpc: RpcParameter) -> RpcParameter:
    """The notes except those about default values."""
    plain = RpcParameter()
    return RpcParameter(
        source=rpc.source,
        line=rpc.line,
        given={name: line for name, line in rpc.given.items() if getattr(rpc, name) != getattr(plain, name)},
    )
