"""Immutable, numbered versions in a repository: their files, how they are read, announced, checked and removed.

docs/formats/version.md is the specification. Knows nothing of training: `elasticctr.publish` makes versions of runs.
"""

from elasticctr.versions.donefile import DonefileEvent
from elasticctr.versions.manifest import FileEntry, Manifest, Segment, TableEntry
from elasticctr.versions.repository import Live, Repository

__all__ = ["DonefileEvent", "FileEntry", "Live", "Manifest", "Repository", "Segment", "TableEntry"]
