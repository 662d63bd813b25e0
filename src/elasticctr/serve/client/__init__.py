"""Clients of prediction servers: routing, retries, answers. Imports neither torch nor the server."""

from elasticctr.serve.client.aio import AsyncPredictClient
from elasticctr.serve.client.client import PredictClient
from elasticctr.serve.client.prediction import Coverage, Prediction
from elasticctr.serve.client.settings import EndpointSettings, PredictClientSettings, VariantSettings

__all__ = [
    "AsyncPredictClient",
    "Coverage",
    "EndpointSettings",
    "PredictClient",
    "PredictClientSettings",
    "Prediction",
    "VariantSettings",
]
