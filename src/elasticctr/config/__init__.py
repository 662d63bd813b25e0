"""Typed settings: YAML in, frozen pydantic models out. A mistake is answered with the nearest valid key."""

from elasticctr.config.loading import apply_overrides, load_yaml, parse_settings, read_settings_file
from elasticctr.config.settings import Settings, tagged_by

__all__ = ["Settings", "apply_overrides", "load_yaml", "parse_settings", "read_settings_file", "tagged_by"]
