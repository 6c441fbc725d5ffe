"""Object stores: list, size, ranged read, write and deletion of the objects below a URL.

`open_store(url, options)` returns an `ObjectStore`. obstore serves `s3://`, `gs://` and `az://`
(`pip install 'seglog[s3]'`); fsspec serves other schemes, such as `hdfs://`. Both are imported on
first use. Log readers use this interface; it knows nothing of logs.
"""

from seglog.objects.store_options import StorageOptions
from seglog.objects.store import ObjectInfo, ObjectStore, ObjectVersion, open_store
from seglog.objects.urls import is_url

__all__ = ["ObjectInfo", "ObjectStore", "ObjectVersion", "StorageOptions", "is_url", "open_store"]
