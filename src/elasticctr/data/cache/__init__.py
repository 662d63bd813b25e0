"""Parsed samples kept on disk, memory-mapped and cut to batches without parsing. Layout: docs/formats/cache.md."""

from elasticctr.data.cache.build import build_cache, ensure_cache
from elasticctr.data.cache.cache import Cache, is_cache

__all__ = ["Cache", "build_cache", "ensure_cache", "is_cache"]
