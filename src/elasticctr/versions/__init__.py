"""Immutable, numbered versions in a repository: writing, reading, announcing, checking and removing them.

docs/formats/version.md is the specification. Knows nothing of training: `elasticctr.publish` turns runs into versions.
"""

from elasticctr.versions.donefile import DonefileEvent
from elasticctr.versions.manifest import FileEntry, Manifest, Segment, TableEntry
from elasticctr.versions.repository import Live, Repository

__all__ = ["DonefileEvent", "FileEntry", "Live", "Manifest", "Repository", "Segment", "TableEntry"]
