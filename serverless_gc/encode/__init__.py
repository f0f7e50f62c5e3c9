"""From rows to blocks to coded blocks, streaming."""

from serverless_gc.encode.encoded import EncodedMatrix, load_encoded, read_manifest
from serverless_gc.encode.encoder import DEFAULT_MAX_BYTES, encode_rows, store_encoded
from serverless_gc.encode.fill import (
    FILL_LIMIT,
    FILL_TARGET,
    SparseFillWarning,
    choose_code_for_sparse,
    projected_fill,
)
from serverless_gc.encode.fingerprint import Scan, fingerprint, scan
from serverless_gc.encode.kept import Kept
from serverless_gc.encode.partition import Partition
from serverless_gc.encode.parts import Parts, StoredParts, array_digest, load_parts, store_array_parts, store_parts
from serverless_gc.encode.source import Source
from serverless_gc.encode.sources import as_source

__all__ = [
    "DEFAULT_MAX_BYTES",
    "FILL_LIMIT",
    "FILL_TARGET",
    "EncodedMatrix",
    "Kept",
    "Partition",
    "Parts",
    "Scan",
    "Source",
    "SparseFillWarning",
    "StoredParts",
    "array_digest",
    "as_source",
    "choose_code_for_sparse",
    "encode_rows",
    "fingerprint",
    "load_encoded",
    "load_parts",
    "projected_fill",
    "read_manifest",
    "scan",
    "store_array_parts",
    "store_encoded",
    "store_parts",
]
