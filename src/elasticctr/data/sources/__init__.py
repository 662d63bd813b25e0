"""Where samples come from: files, directories, globs, date trees, http(s), hdfs:// and s3://.

The only part of ElasticCTR that knows file system clients. It turns a location into an ordered list of sources and
each source into a stream of decompressed bytes; what the bytes mean is not its business.
"""

from elasticctr.data.sources.locations import Source, resolve

__all__ = ["Source", "resolve"]
