"""Clients of prediction servers: whom they ask, how they retry, what they hand back. No torch, no server."""

from elasticctr.serve.client.aio import AsyncClient
from elasticctr.serve.client.client import Client
from elasticctr.serve.client.prediction import Coverage, Prediction
from elasticctr.serve.client.settings import ClientSettings, EndpointSettings, VariantSettings

__all__ = [
    "AsyncClient",
    "Client",
    "ClientSettings",
    "Coverage",
    "EndpointSettings",
    "Prediction",
    "VariantSettings",
]
