"""Means, model averages, gradient tables, precision weights and decoders."""

import math

import numpy as np
import pytest
from toy_problems import SlotDelays, exponential, fed10, lin20, train

from serverless_gc import codes
from serverless_gc.aggregate import (
    AverageModels,
    AverageStats,
    Decode,
    GradientTable,
    KeepSlots,
    Mean,
    PrecisionWeightedMean,
    StackStats,
    SumOver,
    WeightedMean,
    merge_late,
)
from serverless_gc.codes.gradient.linear import LinearGradientCode
from serverless_gc.engine import Completion
from serverless_gc.errors import InputError, NotDecodableError
from serverless_gc.optim import SGD, AMSGrad, ModelAverage
from serverless_gc.policies import CADA2Trigger, FreshK, Groups, UntilDecodable, WaitAll, has_changed
from serverless_gc.transforms import PseudoGradient
from serverless_gc.types import Arrival, TaskSpec, UpdateContext

RNG = np.random.default_rng(0)


def context(x):
    return UpdateContext(np.asarray(x, float), 0, 0.0, RNG, lambda _: np.asarray(x, float))


def results(bodies, work=None, **stats):
    work = [1.0] * len(bodies) if work is None else work
    return [
        Arrival(TaskSpec(f"0-{i}", i, 0), 0.0, 1.0, float(w), b, {k: v[i] for k, v in stats.items()})
        for i, (b, w) in enumerate(zip(bodies, work, strict=True))
    ]


BODIES = [np.array([1.0, 2.0]), np.array([3.0, 0.0]), np.array([5.0, 1.0])]


def test_means():
    ctx = context(np.zeros(2))
    np.testing.assert_allclose(Mean().combine(results(BODIES), ctx).direction, [3.0, 1.0])
    np.testing.assert_allclose(WeightedMean().combine(results(BODIES, [1, 0, 3]), ctx).direction, [4.0, 1.25])
    np.testing.assert_allclose(WeightedMean(of="sums").combine(results(BODIES, [1, 4, 5]), ctx).direction, [0.9, 0.3])
    np.testing.assert_allclose(SumOver(6).combine(results(BODIES), ctx).direction, [1.5, 0.5])
    by_shard = WeightedMean("rows").combine(results(BODIES, rows=[2, 2, 0]), ctx)
    np.testing.assert_allclose(by_shard.direction, [2.0, 1.0])
    assert by_shard.n_eff == 4


@pytest.mark.parametrize("aggregator", [Mean(), WeightedMean(), WeightedMean(of="sums"), SumOver(3), AverageModels()])
def test_nothing_to_report_is_no_step(aggregator):
    ctx = context(np.ones(2))
    for given in ([], results([None, None])):
        update = aggregator.combine(given, ctx)
        assert np.array_equal(update.direction, np.zeros(2))
        assert update.n_eff == 0.0
    partly = results([None, BODIES[0]])
    np.testing.assert_allclose(aggregator.combine(partly, ctx).n_eff, 1.0)


def test_weights_are_checked():
    ctx = context(np.zeros(2))
    with pytest.raises(InputError, match=r"weight 'rows' must be 'work_done' or in the results' stats; task 0-0"):
        WeightedMean("rows").combine(results(BODIES), ctx)
    with pytest.raises(InputError, match="at least 0, task 0-1 has -1"):
        AverageModels(lambda a: -a.task.slot).combine(results(BODIES), ctx)
    with pytest.raises(InputError, match="of must be"):
        WeightedMean(of="medians")
    with pytest.raises(InputError, match="n must be"):
        SumOver(0)


class TestAverageModels:
    def test_equal_work_is_the_plain_average_and_no_work_has_no_influence(self):
        x = np.array([1.0, 1.0])
        update = AverageModels().combine(results(BODIES, [7, 7, 7]), context(x))
        np.testing.assert_allclose(x - update.direction, [3.0, 1.0])
        lazy = [np.array([np.inf, 1e300]), *BODIES[1:]]
        with np.errstate(invalid="ignore"):
            update = AverageModels().combine(results([BODIES[0], *lazy[1:]], [0, 2, 2]), context(x))
        np.testing.assert_allclose(x - update.direction, [4.0, 0.5])

    def test_nobody_did_anything(self):
        update = AverageModels().combine(results(BODIES, [0, 0, 0]), context(np.ones(2)))
        assert np.array_equal(update.direction, np.zeros(2))

    def test_one_step_at_a_common_point_is_the_mean_over_all_samples(self):
        problem, x, work = lin20(n=600), RNG.standard_normal(20), [3, 1, 9, 0, 4]
        ends = np.cumsum(work)
        rows = [slice(end - n, end) for end, n in zip(ends, work, strict=True)]
        models = [x - 0.1 * problem.gradient(x, r) if n else x for r, n in zip(rows, work, strict=True)]
        averaged = AverageModels().combine(results(models, work), context(x)).direction
        gradients = [problem.gradient(x, r) * n if n else np.zeros(20) for r, n in zip(rows, work, strict=True)]
        pooled = WeightedMean(of="sums").combine(results(gradients, work), context(x)).direction
        np.testing.assert_allclose(averaged, 0.1 * pooled, atol=1e-14)
        np.testing.assert_allclose(pooled, problem.gradient(x, slice(0, ends[-1])), atol=1e-13)

    def test_weights_in_proportion_to_the_work_have_the_least_variance(self):
        work = np.array([1.0, 4.0, 10.0])
        best = work / work.sum()
        rng = np.random.default_rng(1)
        for _ in range(50):
            other = rng.dirichlet(np.ones(3))
            assert np.sum(best**2 / work) <= np.sum(other**2 / work)

    def test_late_merge(self):
        np.testing.assert_allclose(merge_late(np.ones(2), np.zeros(2), work=90, late_work=10), 0.9)
        np.testing.assert_allclose(merge_late(np.ones(2), np.zeros(2), work=5, late_work=0), 1.0)
        with pytest.raises(InputError, match="not both 0"):
            merge_late(np.ones(2), np.zeros(2), work=0, late_work=0)


def test_fresh_clients_give_federated_averaging():
    problem, shards = fed10()

    def local(task, x):
        for _ in range(5):
            x = x - 0.1 * problem.gradient(x, shards[task.slot])
        return Completion(x, work_done=200)

    run = train(
        FreshK(10), lambda _: 1.0, local, np.zeros(10), n_slots=10, rounds=5,
        aggregator=WeightedMean(), optimizer=SGD(0.1), transforms=(PseudoGradient(0.1),),
    )  # fmt: skip
    averaged = train(
        WaitAll(), lambda _: 1.0, local, np.zeros(10), n_slots=10, rounds=5,
        aggregator=AverageModels(), optimizer=ModelAverage(),
    )  # fmt: skip
    x = np.zeros(10)
    for _ in range(5):
        x = np.mean([local(TaskSpec("", i, 0), x).body for i in range(10)], axis=0)
    np.testing.assert_allclose(run.models[-1], x, atol=1e-13)
    np.testing.assert_allclose(averaged.models[-1], x, atol=1e-13)


class TestGradientTable:
    def run(self, trigger, rounds=41, groups=4):
        problem, holder = lin20(n=400), {}

        def work(task, x):
            gradient = problem.sample(x, 16, task.seed)
            if trigger is None or task.payload["sent"] is None:
                return gradient
            then = problem.sample(holder["run"].training.model_at(task.payload["sent"]), 16, task.seed)
            told = task.payload
            change = float(np.sum((gradient - then) ** 2))
            return gradient if has_changed(change, told["threshold"], told["age"], told["max_age"]) else None

        return train(
            Groups([[i] for i in range(groups)], trigger), exponential, work, np.zeros(20), n_slots=groups,
            aggregator=GradientTable(groups), optimizer=AMSGrad(0.01), rounds=rounds, snapshots=11,
            on_step=lambda run, _: holder.update(run=run),
        )  # fmt: skip

    def test_no_laziness_is_distributed_amsgrad(self):
        plain = self.run(None)
        assert np.array_equal(self.run(CADA2Trigger(0.0, max_age=10)).models, plain.models)

    def test_endless_laziness_sends_by_age_alone(self):
        run = self.run(CADA2Trigger(math.inf, max_age=10))
        sent = [sorted(step.update.meta["sent"]) for step in run.steps]
        assert [k for k, groups in enumerate(sent) if groups] == [0, 10, 20, 30, 40]
        assert sum(map(len, sent)) == 4 * math.ceil(41 / 10)

    def test_a_run_is_taken_up_again(self):
        table, other = GradientTable(2), GradientTable(2)
        first = Arrival(TaskSpec("0-1", 1, 0, payload={"group": 1}), 0.0, 1.0, body=np.array([4.0]))
        table.combine([first], context(np.zeros(1)))
        other.load_state_dict(table.state_dict())
        assert other.combine([], context(np.zeros(1))).direction == 2.0

    def test_groups_are_checked(self):
        with pytest.raises(InputError, match=r"payload\['group'\] of task 0-0 must be in 0..1, got None"):
            GradientTable(2).combine(results(BODIES), context(np.zeros(2)))
        with pytest.raises(InputError, match="n_groups"):
            GradientTable(0)


class TestPrecision:
    def batch(self, rng, sds, m=10, skewed=False):
        noise = rng.standard_exponential((len(sds), m)) - 1 if skewed else rng.standard_normal((len(sds), m))
        samples = noise * np.asarray(sds)[:, None]
        return results(
            [np.atleast_1d(row.mean()) for row in samples], [m] * len(sds),
            sum_of_squares=[np.atleast_1d(np.sum(row**2)) for row in samples],
        )  # fmt: skip

    def test_known_variances_give_the_least_variance(self):
        aggregator = PrecisionWeightedMean()
        aggregator.variances = dict(enumerate([1.0, 1.0, 1.0, 100.0]))
        weights = np.array(aggregator.weights(range(4)))
        variances = np.array([1.0, 1.0, 1.0, 100.0])
        assert np.sum(weights**2 * variances) == pytest.approx(0.332226, abs=1e-6)
        assert np.sum(variances) / 16 == pytest.approx(6.4375)

    def test_estimates_of_ten_samples_lose_little(self):
        rng, sds, seen = np.random.default_rng(0), [1.0, 1.0, 1.0, 10.0], []
        for _ in range(1500):
            aggregator = PrecisionWeightedMean(memory=0.0)
            aggregator.combine(self.batch(rng, sds), context(np.zeros(1)))
            weights = np.array(aggregator.weights(range(4)))
            seen.append(np.sum(weights**2 * np.array(sds) ** 2))
        assert np.mean(seen) == pytest.approx(0.384, abs=0.02)

    def test_weights_are_from_before_the_batch_and_so_unbiased(self):
        rng, ours, same = np.random.default_rng(0), [], []
        aggregator = PrecisionWeightedMean(memory=0.0)
        for k in range(3000):
            given = self.batch(rng, [1.0] * 4, skewed=True)
            direction = aggregator.combine(given, context(np.zeros(1))).direction[0]
            if k:
                ours.append(direction)
            after = aggregator.weights([a.task.slot for a in given])  # what this very batch would say
            same.append(np.dot(after, [a.body[0] for a in given]))
        error = np.std(ours) / np.sqrt(len(ours))
        assert abs(np.mean(ours)) < 3 * error
        assert np.mean(same) == pytest.approx(-0.128, abs=3 * np.std(same) / np.sqrt(len(same)) + 5e-4)

    def test_the_estimate_is_an_exponential_mean_of_batch_variances(self):
        rng, aggregator, expected = np.random.default_rng(3), PrecisionWeightedMean(memory=0.75), None
        for _ in range(5):
            samples = rng.standard_normal((6, 2))
            given = results([samples.mean(axis=0)], [6], sum_of_squares=[np.sum(samples**2, axis=0)])
            aggregator.combine(given, context(np.zeros(2)))
            value = samples.var(axis=0, ddof=1).mean()
            expected = value if expected is None else 0.75 * expected + 0.25 * value
        assert aggregator.variances[0] == pytest.approx(expected)

    def test_unknown_slots_count_like_the_known_and_samples_count(self):
        aggregator = PrecisionWeightedMean()
        assert aggregator.weights([0, 1]) == [0.5, 0.5]
        aggregator.variances = {0: 1.0, 1: 3.0}
        np.testing.assert_allclose(aggregator.weights([0, 1, 2]), np.array([1, 1 / 3, 1 / 2]) / (11 / 6))
        np.testing.assert_allclose(aggregator.weights([0, 1], [10, 30]), [0.5, 0.5])
        aggregator.variances = {0: 0.0, 1: 0.0}
        assert aggregator.weights([0, 1]) == [0.5, 0.5]

    def test_what_results_must_bring_is_named(self):
        with pytest.raises(InputError, match=r"task 0-0 must deliver stats\['sum_of_squares'\] of at least two"):
            PrecisionWeightedMean().combine(results(BODIES), context(np.zeros(2)))
        with pytest.raises(InputError, match="memory"):
            PrecisionWeightedMean(1.0)


class TestDecode:
    @pytest.mark.parametrize(
        "code",
        [
            codes.get("mds", n_workers=8, k=5),
            codes.get("polar", n_workers=8, k=4),
            LinearGradientCode([[0.5, 1, 0], [0, 1, -1], [0.5, 0, 1]]),
            LinearGradientCode(np.eye(4)[[0, 1, 2, 3, 0, 1, 2, 3]], placement=[[0, 1], [2, 3], [4, 5], [6, 7]]),
        ],
        ids=["mds", "polar", "cyclic", "several-messages"],
    )
    def test_a_decoder_is_an_aggregator_and_the_run_is_gradient_descent(self, code):
        problem = lin20(n=40 * code.k)
        rows = [slice(40 * j, 40 * (j + 1)) for j in range(code.k)]

        def work(task, x):
            parts = np.array([40 * problem.gradient(x, r) for r in rows])
            sent = np.asarray(code.encode(parts, messages=code.placement(task.slot)))
            return sent[0] if len(sent) == 1 else sent

        run = train(
            UntilDecodable(code), exponential, work, np.zeros(20), n_slots=code.n_workers,
            aggregator=Decode(code, scale=1 / problem.n), optimizer=SGD(0.3), rounds=10,
        )  # fmt: skip
        x = np.zeros(20)
        for _ in range(10):
            x = x - 0.3 * problem.gradient(x, slice(None))
        np.testing.assert_allclose(run.models[-1], x, atol=1e-10)
        assert any(len(step.outcome.arrivals) < code.n_workers for step in run.steps)

    def test_too_few_messages_are_an_error(self):
        code = codes.get("mds", n_workers=4, k=2)
        with pytest.raises(NotDecodableError):
            Decode(code).combine(results([np.ones(2)]), context(np.zeros(2)))


class TestMeta:
    def test_slots_stats_and_stacks_are_handed_over(self):
        ctx = context(np.zeros(2))
        given = results(BODIES, [1, 2, 5], sum_of_squares=[np.ones(2) * i for i in range(3)])
        assert set(KeepSlots(Mean()).combine(given, ctx).meta["slots"]) == {0, 1, 2}
        np.testing.assert_allclose(
            AverageStats(Mean(), "sum_of_squares").combine(given, ctx).meta["sum_of_squares"], 3 / 8
        )
        roots = [RNG.standard_normal((4, 2)) for _ in range(3)]
        both = KeepSlots(StackStats(Mean())).combine(results(BODIES, hessian_root=roots), ctx).meta
        stack = both["hessian_root"]
        np.testing.assert_allclose(stack.T @ stack, np.mean([r.T @ r for r in roots], axis=0))
        assert set(both) == {"slots", "hessian_root"}

    def test_what_is_missing_is_named(self):
        with pytest.raises(InputError, match=r"task 0-0 must deliver stats\['fisher'\], got \[\]"):
            AverageStats(Mean(), "fisher").combine(results(BODIES), context(np.zeros(2)))
        assert AverageStats(Mean(), "fisher").combine([], context(np.zeros(2))).meta == {}
        assert StackStats(Mean()).combine([], context(np.zeros(2))).meta == {}


def test_slots_differ_in_speed_and_the_table_does_not_mind():
    """Grouped workers of any speed: the trajectory depends on the samples alone."""
    law = SlotDelays(lambda slot, _, rng: rng.standard_exponential() * (1 + slot))

    def run(delays):
        return train(
            Groups([[0, 1], [2, 3]]), delays, lambda task, x: x + task.payload["group"], np.ones(1), n_slots=4,
            aggregator=GradientTable(2), optimizer=SGD(0.1), rounds=10,
        ).models  # fmt: skip

    assert np.array_equal(run(law), run(exponential))
