"""The deployed worker, for real: its zip in processes of its own, driven by whole sessions over S3 and Invoke."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import gradient_codes
import numpy as np
import pytest
from rig_functions import Sdk, worker_zip

import serverless_gc as sgc
from serverless_gc.inject import Faults, Stragglers
from serverless_gc.invoke.envelope import decode_reply, encode_request
from serverless_gc.policies import DitheredUniform
from serverless_gc.testing.rig import Rig, Step
from serverless_gc.types import TaskSpec
from serverless_gc.wire import Reply, Task

NAMES = {"SERVERLESS_GC_BUCKET": "worker-bucket", "SERVERLESS_GC_FUNCTION": "worker"}


@pytest.fixture(scope="module")
def code():
    return worker_zip()


def deploy(sdk, code, **options):
    """Deploy as is done for real: the code is in S3."""
    sdk.s3.create_bucket(Bucket=NAMES["SERVERLESS_GC_BUCKET"])
    sdk.s3.put_object(Bucket=NAMES["SERVERLESS_GC_BUCKET"], Key="code/worker.zip", Body=code)
    where = {"S3Bucket": NAMES["SERVERLESS_GC_BUCKET"], "S3Key": "code/worker.zip"}
    sdk.deploy("worker", where, **{"Handler": "handler.handler", "MemorySize": 1769, "Timeout": 30, **options})


@pytest.fixture(scope="module")
def deployed(rig, code):
    """The worker on the session's rig."""
    with rig.activated(**NAMES), Sdk() as sdk:
        deploy(sdk, code)
    return rig


@pytest.fixture
def worker(deployed):
    """A rig that is found, whose worker has no faults, no reservation and no environments."""
    with deployed.activated(**NAMES), Sdk() as sdk:
        deployed.admin.set_faults("worker", {})
        deployed.admin.kill("worker")
        yield deployed, sdk
        sdk.functions.delete_function_concurrency(FunctionName="worker")
        sdk.functions.update_function_configuration(FunctionName="worker", Timeout=30)


def test_gradients_equal_numpy_and_environments_are_reused(worker, problem):
    rig, _ = worker
    before = rig.admin.counts("worker")
    with sgc.Session("aws") as session:
        data = session.encode(problem.X, problem.y, code="uncoded", n_workers=4)
        for w in (problem.w, 2 * problem.w):
            np.testing.assert_allclose(data.gradient(w), problem.reference(w), rtol=1e-10)
    counts = rig.admin.counts("worker")
    assert counts.runs - before.runs == 2 * 2 * 4  # two products a gradient
    assert 1 <= counts.cold_starts - before.cold_starts <= 4
    assert len(rig.admin.environments("worker")) == counts.cold_starts - before.cold_starts


def test_a_coded_gradient(worker, problem):
    rig, _ = worker
    with sgc.Session("aws") as session:
        data = session.encode(problem.X, problem.y, code="polar", n_workers=8, k=4)
        problem.check(data.gradient(problem.w))
    assert 1 <= len(rig.admin.environments("worker")) <= 16


def test_a_concurrency_of_ten_takes_sixty_four_in_waves(worker, make_problem):
    rig, sdk = worker
    problem = make_problem(n=640)
    sdk.functions.put_function_concurrency(FunctionName="worker", ReservedConcurrentExecutions=10)
    before = rig.admin.counts("worker")
    with sgc.Session("aws") as session:
        data = session.encode(problem.X, problem.y, code="uncoded", n_workers=64)
        g, report = data.gradient(problem.w, with_report=True)
    problem.check(g)
    counts = rig.admin.counts("worker")
    assert len(rig.admin.environments("worker")) <= 10
    assert counts.throttles > before.throttles
    assert counts.runs - before.runs == 2 * 64
    assert report.balanced
    assert report.failed == 0


def test_a_worker_that_hangs_is_ended_by_its_timeout(worker, problem):
    """The hung one's time-out is reported to the driver, whose next attempt computes what is missing."""
    rig, sdk = worker
    sdk.functions.update_function_configuration(FunctionName="worker", Timeout=1)
    rig.admin.set_faults("worker", {2: Step(delay=60)})
    with sgc.Session("aws") as session:
        data = session.encode(problem.X, problem.y, code="uncoded", n_workers=2)
        problem.check(data.gradient(problem.w))
    assert rig.admin.counts("worker").requests >= 5


def test_a_killed_environment_costs_one_attempt(worker, problem):
    rig, _ = worker
    rig.admin.set_faults("worker", {3: Step(action="kill")})
    with sgc.Session("aws") as session:
        data = session.encode(problem.X, problem.y, code="uncoded", n_workers=4)
        problem.check(data.gradient(problem.w))
        assert rig.admin.kill("worker") >= 1
        problem.check(data.gradient(problem.w))


def test_faults_drawn_from_the_tasks(code, problem):
    """Stragglers, throttles and lost replies that hit the same tasks at every run, outside the driver."""
    injections = [Stragglers(fraction={0}, slowdown=4, base=0.05), Faults(throttle={1}, lose_reply={2}, fail={3})]
    with Rig(inject=injections) as rig, rig.activated(**NAMES), Sdk() as sdk:
        deploy(sdk, code)
        with sgc.Session("aws") as session:
            data = session.encode(problem.X, problem.y, code="uncoded", n_workers=4)
            problem.check(data.gradient(problem.w))
        counts = rig.admin.counts("worker")
    assert counts.throttles == 2 * 2  # twice in each of the two products
    assert counts.requests >= 2 * (4 + 2 + 1)


def test_rate_of_warm_invocations(worker, capsys):
    """One after the other and eight at a time; printed, not judged."""
    _, sdk = worker

    task = Task("r", 0, "t", 0, 0, kernel="noop", blocks=(), result_key="", store="file:///", params={"size": 8})
    body = encode_request(task.to_bytes())

    def call(_):
        return sdk.functions.invoke(FunctionName="worker", Payload=body)["Payload"].read()

    assert Reply.from_bytes(decode_reply(TaskSpec("t", 0, 0), call(0))).value.tolist() == [0.0] * 8
    rates = {}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(8)))
        for at_once, run in ((1, map), (8, pool.map)):
            begin = time.perf_counter()
            assert len(list(run(call, range(300)))) == 300
            rates[at_once] = 300 / (time.perf_counter() - begin)
    with capsys.disabled():
        print("\nwarm invocations a second, boto3: " + ", ".join(f"{n} at once {r:.0f}" for n, r in rates.items()))  # noqa: T201


@pytest.mark.usefixtures("worker")
def test_a_function_given_as_the_loss_runs_in_the_deployed_worker(problem):
    """A16, A18: it is loaded by the package's own cloudpickle, which no other task loads."""
    shift = np.ones(20)

    def loss(X, y, w):
        r = X @ w - y
        return 0.5 * r @ r, X.T @ r + shift

    def broken(X, y, w):
        return X.T @ (y * w[0]) / (1 // 0)

    with sgc.Session("aws") as session:
        data = session.encode(problem.X, problem.y, code=gradient_codes.two_each(3, 1))
        value, gradient, report = data.value_and_gradient(problem.w, loss=loss, with_report=True)
        with pytest.raises(sgc.NotDecodableError, match=r"ZeroDivisionError: .*, first on partition \d \(rows"):
            data.gradient(problem.w, loss=broken)
    np.testing.assert_allclose(gradient, problem.gradient + 6 * shift, rtol=1e-9)
    assert value == pytest.approx(0.5 * np.sum((problem.X @ problem.w - problem.y) ** 2))
    assert report.failed == 0


@pytest.mark.usefixtures("worker")
def test_rounds_of_nodes_run_in_the_deployed_worker(problem):
    """Modules and built-in schemes are in the zip; what was drawn is what this process would draw."""
    asked = {"lr": 0.1, "rounds": 2, "method": "aet", "a": 1, "b": 1, "batch": 50, "topology": "complete"}
    fits = {}
    for backend in ("aws", "local"):
        with sgc.Session(backend) as session:
            data = session.encode(problem.X, problem.y, code="ignore-stragglers", n_workers=3)
            fits[backend] = sgc.minimize_decentralized(data, np.zeros(20), **asked)
    np.testing.assert_allclose(fits["aws"].models, fits["local"].models, rtol=1e-12, atol=1e-14)
    assert fits["aws"].report.failed == 0
    assert fits["aws"].traffic.gets == 3 * (1 + 2)


@pytest.mark.usefixtures("worker")
def test_stochastic_tasks_run_in_the_deployed_worker(problem):
    """Kernel and compressors are in the zip, too; a time limit is one on the clock of the function."""
    fits, asked = {}, {"lr": 0.05, "rounds": 2, "batch": 50}
    for backend in ("aws", "local"):
        with sgc.Session(backend) as session:
            data = session.encode(problem.X, problem.y, code="ignore-stragglers", n_workers=3)
            train = partial(sgc.minimize_stochastic, data, np.zeros(20), **asked)
            fits[backend] = train(scheme="cada", weight=0.1, compressor=DitheredUniform(0.01))
            timed = train(scheme="anytime", compute_seconds=0.3)
        assert timed.account.samples > 0
    np.testing.assert_allclose(fits["aws"].w, fits["local"].w, rtol=1e-12, atol=1e-14)
    assert fits["aws"].report.failed == 0
