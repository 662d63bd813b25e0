"""From a trained run to an immutable, numbered version in a repository; docs/formats/version.md.

Readers need only what is named here. Writing is in `publisher`, which needs torch.
"""

from elasticctr.publish.donefile import Event
from elasticctr.publish.manifest import FileEntry, Manifest, Segment, TableEntry
from elasticctr.publish.repository import Live, Repository

__all__ = ["Event", "FileEntry", "Live", "Manifest", "Repository", "Segment", "TableEntry"]
