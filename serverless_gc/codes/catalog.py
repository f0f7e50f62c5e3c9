"""The codes of this package by name: where each is, what kind it is, and how its sizes are completed.

To add one, write its class and a `register` call here. Classes are imported when first used.
"""

from __future__ import annotations

from serverless_gc.codes.lagrange.points import oversampled
from serverless_gc.codes.mds.points import few_stragglers, rotation_sizes
from serverless_gc.codes.product.grids import local_parity_sizes, product_sizes
from serverless_gc.codes.registry import per_worker, rate, register

__all__: list[str] = []

_HOUSE = "serverless_gc.codes"


def _few_blocks(n_workers: int | None, k: int | None) -> tuple[int, int]:
    """Complete sizes for interpolation, which takes few blocks: one a worker, but 10 at most."""
    n_workers = n_workers or max(16, k or 0)
    return n_workers, k or min(n_workers, 10)


register(
    "berrut",
    f"{_HOUSE}.lagrange.berrut:BerrutCode",
    summary="Rational interpolation: approximate answers for any function of a block, from any number of results.",
    exact=False,
    sizes=rate(1, 8),
)
register(
    "bgc",
    f"{_HOUSE}.gradient.bernoulli:BernoulliCode",
    summary="Every worker holds each partition by chance: simple, approximate.",
    kind="gradient",
    exact=False,
    sizes=rate(1, 1),
)
register(
    "bibd",
    f"{_HOUSE}.gradient.bibd:BIBDCode",
    summary="Block designs: the error depends only on how many straggle; approximate.",
    kind="gradient",
    exact=False,
    sizes=None,
)
register(
    "clustered",
    f"{_HOUSE}.gradient.clustered:ClusteredCode",
    summary="A small gradient code in each cluster of workers; clusters can be formed anew each round.",
    kind="gradient",
    sizes=rate(1, 1),
)
register(
    "coded-reduce",
    f"{_HOUSE}.gradient.coded_reduce:CodedReduceCode",
    summary="A gradient code at every parent of a tree: no node receives many messages.",
    kind="gradient",
    sizes=None,
)
register(
    "cpgc",
    f"{_HOUSE}.multi:CodedPartialGradients",
    kind="multi-message",
    summary="Workers send a plain partition gradient, then sums of further ones, each as it is done.",
    sizes=rate(1, 1),
)
register(
    "cyclic",
    f"{_HOUSE}.gradient.cyclic:CyclicRepetitionCode",
    summary="Any number of workers and of arbitrary stragglers, at the least load.",
    kind="gradient",
    sizes=rate(1, 1),
)
register(
    "cyclic-mds",
    f"{_HOUSE}.gradient.cyclic_mds:CyclicMDSCode",
    summary="Deterministic circulant with a closed-form decoder, for few stragglers.",
    kind="gradient",
    sizes=rate(1, 1),
)
register(
    "entangled",
    f"{_HOUSE}.matmul.polynomial:EntangledCode",
    summary="Matrix products with the inner dimension cut too: p q r + r - 1 results, few blocks.",
    kind="matmul",
    sizes=None,
)
register(
    "encoded",
    f"{_HOUSE}.encoded.code:EncodedCode",
    summary="Encoded optimization: least squares on mixed rows, nobody in particular is waited for; approximate.",
    kind="gradient",
    exact=False,
    sizes=rate(1, 1),
)
register(
    "erasurehead",
    f"{_HOUSE}.gradient.erasure_head:ErasureHeadCode",
    summary="Fractional repetition, stopped early: least mean error against random stragglers.",
    kind="gradient",
    exact=False,
    sizes=rate(1, 1),
)
register(
    "expander",
    f"{_HOUSE}.gradient.expander:ExpanderCode",
    summary="Averages over the neighbours in an expander graph: bounded worst case, approximate.",
    kind="gradient",
    exact=False,
    sizes=rate(1, 1),
)
register(
    "frc",
    f"{_HOUSE}.gradient.frc:FractionalRepetitionCode",
    summary="Teams compute the same partitions, one of each suffices: sums only, no rounding grows.",
    kind="gradient",
    sizes=rate(1, 1),
)
register(
    "gc-mmc",
    f"{_HOUSE}.multi:ClusteredMultiMessage",
    kind="multi-message",
    summary="Gradient coding in clusters: what a worker sends tolerates more stragglers the more it has done.",
    sizes=rate(1, 1),
)
register(
    "graph",
    f"{_HOUSE}.gradient.graph:GraphCode",
    summary="Workers are edges of a graph: best weights in linear time, for any stragglers; approximate.",
    kind="gradient",
    exact=False,
    sizes=None,
)
register(
    "heterogeneous",
    f"{_HOUSE}.gradient.heterogeneous:HeterogeneousCode",
    summary="For known probabilities of straggling: unbiased with the least variance; approximate.",
    kind="gradient",
    exact=False,
    sizes=rate(1, 1),
)
register(
    "ignore-stragglers",
    f"{_HOUSE}.gradient.ignore:IgnoreStragglersCode",
    summary="No redundancy, what is missing counts as zero: the baseline of gradient codes.",
    kind="gradient",
    exact=False,
    sizes=rate(1, 1),
)
register(
    "khatri-rao",
    f"{_HOUSE}.matmul.khatri_rao:KhatriRaoCode",
    summary="Matrix products, systematic with random parity: any p q results decode.",
    kind="matmul",
    sizes=None,
)
register(
    "lagrange",
    f"{_HOUSE}.lagrange.code:LagrangeCode",
    summary="Blocks on a polynomial: exact for any polynomial of a block, for few blocks.",
    sizes=oversampled(1),
)
register(
    "lcc-mmc",
    f"{_HOUSE}.multi:LagrangeMultiMessage",
    kind="multi-message",
    summary="Any 2 k - 1 messages, from any workers, give a least-squares gradient; for few blocks.",
    sizes=_few_blocks,
)
register(
    "ldpc",
    f"{_HOUSE}.peeling.ldpc:LDPCCode",
    summary="Sparse checks: cheap at any size, and partly decodable; needs a few percent more results than k.",
    sizes=rate(3, 4),
)
register(
    "linear",
    f"{_HOUSE}.linear:LinearCode",
    summary="Any generator matrix and placement: the slow reference of all others.",
    sizes=None,
    listed=False,
)
register(
    "linear-gradient",
    f"{_HOUSE}.gradient.linear:LinearGradientCode",
    summary="Any encoding matrix of partition gradients: the slow reference of all gradient codes.",
    kind="gradient",
    sizes=None,
    listed=False,
)
register(
    "local-parity",
    f"{_HOUSE}.product.local_parity:LocalParityCode",
    summary="Small grids with one or two parities per row and column: a repair reads a few blocks only.",
    sizes=local_parity_sizes,
)
register(
    "lt",
    f"{_HOUSE}.peeling.lt:LTCode",
    summary="Many sparse random sums a worker, sent one by one: what slow workers finish counts.",
    sizes=per_worker(8),
)
register(
    "lwpd",
    f"{_HOUSE}.projective:ProjectiveCode",
    summary="Derivatives along light directions: messages k times shorter than a gradient, any loss.",
    kind="gradient",
)
register(
    "matdot",
    f"{_HOUSE}.matmul.matdot:MatDotCode",
    summary="Matrix products cut along the inner dimension: 2 k - 1 results, very few blocks.",
    kind="matmul",
    sizes=None,
)
register(
    "mds",
    f"{_HOUSE}.mds.code:MDSCode",
    summary="Systematic with random orthonormal parity: any k results decode.",
)
register(
    "mds-nonsystematic",
    f"{_HOUSE}.mds.nonsystematic:NonsystematicMDSCode",
    summary="Gaussian, Chebyshev or Vandermonde generators, for comparison with mds.",
)
register(
    "nested",
    f"{_HOUSE}.gradient.nested:NestedCode",
    summary="Workers compute only as much redundancy as there are stragglers.",
    kind="gradient",
    sizes=rate(1, 1),
)
register(
    "ortho-matdot",
    f"{_HOUSE}.matmul.matdot:OrthoMatDotCode",
    summary="MatDot in an orthonormal basis: accurate for up to 10 blocks.",
    kind="matmul",
    sizes=None,
)
register(
    "pcr",
    f"{_HOUSE}.lagrange.pcr:PCRCode",
    summary="Least-squares gradients in one round, one weighted sum of results, for few blocks.",
    sizes=oversampled(2),
)
register(
    "polar",
    f"{_HOUSE}.polar.code:PolarCode",
    summary="Additions only, fast to encode and decode at hundreds of workers; needs a few results more than k.",
)
register(
    "polar-matmul",
    f"{_HOUSE}.matmul.polar:PolarMatmulCode",
    summary="Matrix products with a polar code on each operand: additions only.",
    kind="matmul",
    sizes=None,
)
register(
    "polynomial",
    f"{_HOUSE}.matmul.polynomial:PolynomialCode",
    summary="Matrix products by polynomials in real points: p q results, up to 8 blocks.",
    kind="matmul",
    sizes=None,
)
register(
    "polynomial-complex",
    f"{_HOUSE}.matmul.polynomial:ComplexPolynomialCode",
    summary="Matrix products by polynomials in complex roots of unity: p q results.",
    kind="matmul",
    sizes=None,
)
register(
    "product",
    f"{_HOUSE}.product.code:ProductCode",
    summary="A grid with parity per row and column: the most accurate, cheapest at a small overhead.",
    sizes=product_sizes,
)
register(
    "product-gradient",
    f"{_HOUSE}.gradient.product:ProductGradientCode",
    summary="Products of two small gradient codes; exact when both are.",
    kind="gradient",
    exact=False,
    sizes=None,
)
register(
    "product-matmul",
    f"{_HOUSE}.matmul.product:ProductMatmulCode",
    summary="Matrix products with parity on each operand: cheapest and most accurate at a small overhead.",
    kind="matmul",
    sizes=None,
)
register(
    "rbgc",
    f"{_HOUSE}.gradient.bernoulli:RegularizedBernoulliCode",
    summary="A Bernoulli code without overloaded workers or partitions; approximate.",
    kind="gradient",
    exact=False,
    sizes=rate(1, 1),
)
register(
    "replication",
    f"{_HOUSE}.replication:ReplicationCode",
    summary="Copies of every block; exact for any function of a block.",
    sizes=rate(1, 2),
)
register(
    "roots-of-unity",
    f"{_HOUSE}.mds.rotation:RootsOfUnityCode",
    summary="Complex MDS code on the unit circle, for a few stragglers.",
    sizes=few_stragglers,
)
register(
    "rotation",
    f"{_HOUSE}.mds.rotation:RotationCode",
    summary="The roots of unity over the reals, two messages a worker, for a few stragglers.",
    kind="multi-message",
    sizes=rotation_sizes,
)
register(
    "sbc",
    f"{_HOUSE}.gradient.block_model:StochasticBlockCode",
    summary="Hidden blocks between repetition and chance: hard to attack; approximate.",
    kind="gradient",
    exact=False,
    sizes=rate(1, 1),
)
register(
    "short-dot",
    f"{_HOUSE}.short_dot:ShortDotCode",
    summary="Coded rows with zeros: a worker needs a part of x only.",
    sizes=rate(1, 4),
)
register(
    "soft-bibd",
    f"{_HOUSE}.gradient.soft_bibd:SoftBIBDCode",
    summary="Nearly a block design, at any size; approximate.",
    kind="gradient",
    exact=False,
    sizes=rate(1, 1),
)
register(
    "uc-mmc",
    f"{_HOUSE}.multi:UncodedMultiMessage",
    kind="multi-message",
    summary="Every block on several workers in cyclic order, sent one by one: no arithmetic, any function.",
    sizes=rate(1, 1),
)
register(
    "uncoded",
    f"{_HOUSE}.uncoded:UncodedCode",
    summary="One worker a block, all must answer: the baseline.",
    sizes=rate(1, 1),
)
register(
    "ye-abbe",
    f"{_HOUSE}.gradient.ye_abbe:YeAbbeCode",
    summary="Shorter messages for more partitions a worker: where upload is the bottleneck.",
    kind="gradient",
    sizes=rate(1, 1),
)
