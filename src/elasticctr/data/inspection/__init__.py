"""What a user wants to see of an unknown log, in one pass and bounded memory."""

from elasticctr.data.inspection.inspect import LogInspection, inspect_log, open_log

__all__ = ["LogInspection", "inspect_log", "open_log"]
