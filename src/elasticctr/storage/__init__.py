"""Access to files: local, http(s), hdfs:// and s3://.

The only part of ElasticCTR that knows file system clients. It turns a location into an ordered list of sources and
each source into a stream of decompressed bytes, without knowing what the bytes mean. `open_store` writes files
anywhere; `atomic` writes local files that exist completely or not at all.
"""

from elasticctr.storage.locations import Source, open_source, resolve, resolve_dated
from elasticctr.storage.store import Store, open_store

__all__ = ["Source", "Store", "open_source", "open_store", "resolve", "resolve_dated"]
