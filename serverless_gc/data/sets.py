"""The data sets of a session: encoding them, opening those that are kept, and recognizing equal ones."""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from serverless_gc.codes import from_manifest
from serverless_gc.codes.base import Code
from serverless_gc.codes.encoded.code import EncodedCode
from serverless_gc.codes.gradient.any_loss import SumCode
from serverless_gc.codes.manifests import manifest_to_bytes
from serverless_gc.codes.multi import LagrangeMultiMessage
from serverless_gc.data.coded import CodedData
from serverless_gc.data.encoded import EncodedData, Moments, encode_rows, read_whole
from serverless_gc.data.gradient import GradientData
from serverless_gc.data.pair import EncodedPair
from serverless_gc.data.partitions import PartitionedMatrix
from serverless_gc.data.polynomial import PolynomialData, check_polynomial, polynomial_data
from serverless_gc.encode import Scan, Source, array_digest, as_source, load_encoded, load_parts, scan
from serverless_gc.encode.encoded import manifest_key
from serverless_gc.encode.kept import KEPT, begin_kept, check_name, delete_kept, finish_kept, read_kept
from serverless_gc.encode.projection import Need, check_fits_function, need_of, need_of_partitions
from serverless_gc.errors import InputError
from serverless_gc.limits import Limits
from serverless_gc.prepare import check_publish, check_targets, choose_code
from serverless_gc.rounds.resources import Location, Owner
from serverless_gc.types import Array

__all__ = ["AnyData", "DataSets", "Request"]

AnyData: TypeAlias = CodedData | GradientData | EncodedData | PolynomialData
"""What `Session.encode` returns."""


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of `Session.encode`."""

    X: Any
    y: Any
    code: str | Code
    n_workers: int | None
    k: int | None
    dtype: Any
    allow_fill: bool
    publish: int | None
    name: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Checked:
    """A request whose parts are known to go together; ``identity`` is what a kept set is recognized by."""

    source: Source
    scanned: Scan
    targets: Array | None
    code: Code
    dtype: np.dtype[Any]
    publish: int | None
    location: Location
    identity: Mapping[str, Any]


class DataSets:
    """The data sets of one session.

    Parameters
    ----------
    owner
        The session.
    limits
        Limits of the services.
    lasting
        Whether the store outlives the session, so that data can be kept under names.
    """

    def __init__(self, owner: Owner, limits: Limits, *, lasting: bool) -> None:
        self._owner = owner
        self._limits = limits
        self._lasting = lasting
        self._encoded: OrderedDict[tuple[Any, ...], EncodedPair | PartitionedMatrix] = OrderedDict()
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._encoded)

    def clear(self) -> None:
        """Forget them; their objects stay."""
        self._encoded.clear()

    async def forget(self, most: int) -> None:
        """Let those used longest ago go, of those that nobody holds, until at most ``most`` are left."""
        idle = [key for key, pair in self._encoded.items() if not pair.holders]
        for key in idle[: max(0, len(self._encoded) - most)]:
            await self._encoded.pop(key).remove()

    async def let_go(self, name: str) -> None:
        """Let go of the data set of a name: it is about to be deleted."""
        for key in [key for key, pair in self._encoded.items() if pair.location.name == name]:
            await self._encoded.pop(key).remove()

    # -- encoding ------------------------------------------------------------------------------------

    async def encode(self, request: Request) -> AnyData:
        """Do what `Session.encode` says."""
        checked = await self._checked(request)
        name = checked.location.name
        if not name:
            return await self._encode(checked)
        store = (await self._owner.resources()).store
        free = await begin_kept(store, name, checked.identity)
        if free:  # whatever this session knows under the name, somebody else has deleted
            await self.let_go(name)
        try:
            data = await self._encode(checked)
        except InputError:  # of a kind that shows only now; what it would have become is told by the name alone
            if free:
                await delete_kept(store, name)
            raise
        if isinstance(data, GradientData):
            await data.store_labels()
        await finish_kept(store, name, checked.identity, _extra(data))
        return data

    async def _checked(self, request: Request) -> _Checked:
        """Refuse what cannot run, before anything is stored."""
        if request.name:
            check_name(request.name)
            if not self._lasting:
                raise InputError(
                    f"name={request.name!r} keeps data beyond the session, but this backend's own store ends with it: "
                    "give one that lasts, such as Session(store=LocalStore(folder)), or use backend='aws'"
                )
        source = await asyncio.to_thread(as_source, request.X)
        targets = check_targets(request.y, source.shape[0])
        check_publish(request.publish)
        code = await asyncio.to_thread(
            choose_code,
            request.code,
            request.n_workers,
            request.k,
            dict(request.params),
            source,
            allow_fill=request.allow_fill,
            axes=(0,) if request.y is None else (0, 1),
        )
        if isinstance(code, LagrangeMultiMessage):
            check_polynomial(code, source)
        dtype = np.dtype(request.dtype)
        await self._project(source, code, targets, dtype)
        scanned = await asyncio.to_thread(scan, source)
        key = f"{scanned.fingerprint[:16]}-{next(self._numbers):04d}"
        identity = {
            "shape": list(source.shape),
            "dtype": dtype.str,
            "code": code.manifest(),
            "fingerprint": scanned.fingerprint,
        }
        if isinstance(code, EncodedCode | LagrangeMultiMessage):  # they keep X.T y
            identity["y"] = "" if targets is None else await asyncio.to_thread(array_digest, targets)
        location = Location(key, request.name)
        return _Checked(source, scanned, targets, code, dtype, request.publish, location, identity)

    async def _project(self, source: Source, code: Code, targets: Array | None, dtype: np.dtype[Any]) -> None:
        columns = 1 if targets is None or targets.ndim == 1 else targets.shape[1]

        def project() -> list[Need]:
            if isinstance(code, SumCode):
                return [need_of_partitions(source, code, columns=columns, dtype=dtype)]
            axes: tuple[int, ...] = (0,) if targets is None or isinstance(code, LagrangeMultiMessage) else (0, 1)
            return [need_of(source, code, axis=axis, columns=columns, dtype=dtype) for axis in axes]

        needs = await asyncio.to_thread(project)

        async def memory() -> int | None:
            return await (await self._owner.resources()).invoker.memory()

        await check_fits_function(needs, source, code, self._limits, memory)

    async def _encode(self, of: _Checked) -> AnyData:
        source, code, location = of.source, of.code, of.location
        if isinstance(code, EncodedCode):
            return await encode_rows(self._owner, read_whole(source), of.targets, code, location, of.dtype)
        if isinstance(code, SumCode):
            return await self._partitioned(of, code)
        key = (of.scanned.fingerprint, manifest_to_bytes(code.manifest()), of.dtype.str, location.name)
        pair = self._encoded.get(key)
        if not isinstance(pair, EncodedPair) or pair.removed:
            pair = EncodedPair(self._owner, source, code, location, of.dtype, of.scanned.fingerprint)
            self._encoded[key] = pair
        self._encoded.move_to_end(key)
        await pair.matrix(0, of.scanned)
        await self._connect(code)
        if isinstance(code, LagrangeMultiMessage):
            return await polynomial_data(pair, source, of.targets, of.publish)
        if of.targets is not None:
            await pair.matrix(1, of.scanned)
        return CodedData(pair, of.targets, of.publish)

    async def _partitioned(self, of: _Checked, code: SumCode) -> GradientData:
        """Store a matrix in the partitions of a gradient code; all codes with as many share them."""
        key = (of.scanned.fingerprint, code.k, of.dtype.str, of.location.name)
        matrix = self._encoded.get(key)
        if not isinstance(matrix, PartitionedMatrix) or matrix.removed:
            matrix = PartitionedMatrix(self._owner, of.source, code.k, of.location, of.dtype)
            self._encoded[key] = matrix
        self._encoded.move_to_end(key)
        data = GradientData(matrix, code, of.targets)
        await self._connect(code)
        await matrix.parts()
        return data

    async def _connect(self, code: Code) -> None:
        """Open connections meanwhile: a round is coming."""
        res = await self._owner.resources()
        res.chore(res.invoker.connect(code.n_workers))

    # -- opening -------------------------------------------------------------------------------------

    async def open(self, name: str, y: Any, publish: int | None) -> AnyData:
        """Do what `Session.open` says."""
        check_publish(publish)
        store = (await self._owner.resources()).store
        identity, extra = await read_kept(store, name)
        targets = check_targets(y, identity["shape"][0])
        code: Code = await asyncio.to_thread(from_manifest, identity["code"])
        location = Location(f"{identity['fingerprint'][:16]}-{next(self._numbers):04d}", name)
        folder = f"{KEPT}/{name}"
        await self._connect(code)
        if targets is not None and "y" in identity and identity["y"] != await asyncio.to_thread(array_digest, targets):
            raise InputError(f"data set {name!r} was stored with another y, or without; leave y out, or encode it anew")
        if isinstance(code, SumCode):
            stored = await load_parts(store, f"{folder}/rows")
            matrix = PartitionedMatrix(self._owner, stored, code.k, location, stored.dtype)
            if not isinstance(code, EncodedCode):
                return GradientData(matrix, code, targets)
            moments = Moments(extra["products"], extra["squares"], identity["y"]) if extra else None
            return EncodedData(matrix, code, code.frame_for(identity["shape"][0]), moments)
        made = {0: await load_encoded(store, folder, code, stamped=True)}
        if await store.head(manifest_key(folder, 1)) is not None:  # not if it was stored without y, for products only
            made[1] = await load_encoded(store, folder, code, axis=1, stamped=True)
        pair = EncodedPair(self._owner, made, code, location, made[0].dtype, identity["fingerprint"])
        if isinstance(code, LagrangeMultiMessage):
            return PolynomialData(pair, targets, extra["moments"], extra["squares"], identity["y"], publish)
        return CodedData(pair, targets, publish)


def _extra(data: AnyData) -> dict[str, Any]:
    """Return what cannot be had from the stored objects."""
    if isinstance(data, PolynomialData):
        moments, squares = data.moments
        return {"moments": moments, "squares": squares}
    if isinstance(data, EncodedData) and data.moments is not None:
        return {"products": list(data.moments.products), "squares": list(data.moments.squares)}
    return {}
