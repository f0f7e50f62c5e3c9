"""Row programs: recording, pruning, reuse of rows, execution in tiles."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes.polar.code import PolarCode
from serverless_gc.codes.polar.decode import plan_decode
from serverless_gc.codes.program import ADD, NEG, ZERO, Program, Recorder


def interpret(recorder, wanted, inputs):
    """Run every operation on whole rows, each into a fresh array."""
    rows = [np.asarray(v, dtype=float) for v in inputs]
    for kind, a, b in recorder.ops:
        rows.append([rows[a] + rows[b], rows[a] - rows[b], -rows[a], rows[a] / 2][kind])
    return [np.zeros_like(rows[0]) if r == ZERO else rows[r] for r in wanted]


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_programs_compute_what_was_recorded(data):
    n_in = data.draw(st.integers(1, 5))
    recorder = Recorder(n_in)
    names = [ZERO, *range(n_in)]
    for _ in range(data.draw(st.integers(0, 30))):
        a, b = data.draw(st.sampled_from(names)), data.draw(st.sampled_from(names))
        kind = data.draw(st.integers(0, 2))
        names.append(recorder.half(a) if kind == 2 else (recorder.add, recorder.sub)[kind](a, b))
    outputs = data.draw(st.lists(st.sampled_from(names), max_size=5))
    checks = data.draw(st.lists(st.sampled_from(names), max_size=3))
    m = data.draw(st.integers(1, 20))
    inputs = np.random.default_rng(0).standard_normal((n_in, m))
    kept = inputs.copy()
    program = Program.build(recorder, outputs, checks)
    got = np.full((len(outputs), m), np.nan)
    seen = np.full((len(checks), m), np.nan)

    def finish(rows, tile_checks, columns):
        assert len(rows) == len(outputs)
        seen[:, columns] = tile_checks

    given_inputs = [row if i in program.used else None for i, row in enumerate(inputs)]
    program.run(given_inputs, list(got), np.dtype(float), finish=finish, tile=data.draw(st.integers(1, 25)))
    if outputs:
        np.testing.assert_array_equal(got, interpret(recorder, outputs, inputs))
        np.testing.assert_array_equal(seen, np.reshape(interpret(recorder, checks, inputs), (len(checks), m)))
    np.testing.assert_array_equal(inputs, kept)
    assert len(program.steps) <= len(recorder.ops)


def test_structural_zeros_cost_nothing():
    recorder = Recorder(2)
    assert recorder.add(ZERO, 1) == recorder.add(1, ZERO) == recorder.sub(1, ZERO) == 1
    assert recorder.sub(0, 0) == recorder.half(ZERO) == recorder.add(ZERO, ZERO) == ZERO
    assert recorder.ops == []
    recorder.sub(ZERO, 1)
    assert recorder.ops == [(NEG, 1, 1)]


def test_unneeded_operations_are_dropped_and_rows_reused():
    recorder = Recorder(4)
    chain = 0
    for i in range(1, 4):
        chain = recorder.add(chain, i)
        recorder.sub(chain, 0)  # never wanted
    for _ in range(10):
        chain = recorder.add(chain, 1)
    program = Program.build(recorder, [chain])
    assert len(program.steps) == 13
    assert program.n_temps == 1
    assert program.used == (0, 1, 2, 3)
    assert recorder.ops[0] == (ADD, 0, 1)


def test_unchanged_inputs_and_zeros_can_be_outputs():
    program = Program.build(Recorder(2), [1, ZERO, 1])
    out = np.full((3, 4), np.nan)
    program.run([None, np.arange(4.0)], list(out), np.dtype(float))
    assert out.tolist() == [[0, 1, 2, 3], [0, 0, 0, 0], [0, 1, 2, 3]]
    assert program.used == (1,)
    Program.build(Recorder(1), []).run([None], [], np.dtype(float))


@pytest.mark.parametrize(("n", "k"), [(64, 48), (256, 192), (1024, 768)])
def test_decode_programs_stay_below_the_butterfly(n, k):
    """At most (N/2) log2 N row additions, and far fewer temporaries than rows."""
    code = PolarCode(n, k, mode="sc")
    rng = np.random.default_rng(1)
    tracker = code.tracker()
    arrived = []
    for worker in rng.permutation(n).tolist():
        arrived.append(worker)
        if tracker.add(worker):
            break
    lost = [t for t, i in enumerate(code.information_set) if i not in arrived]
    plan = plan_decode(code._layout, "sc", code._mask(arrived), lost)
    assert plan.method == "sc"
    assert 0 < len(plan.program.steps) <= n // 2 * (n.bit_length() - 1)
    assert plan.program.n_temps < n / 2.5
    assert set(plan.program.used) <= set(arrived)


@pytest.mark.parametrize("mode", ["sc", "peel"])
def test_plain_decoding_stays_below_the_butterfly_plus_its_inverse(mode):
    code = PolarCode(256, 128, mode=mode, systematic=False)
    present = code._mask(np.random.default_rng(2).permutation(256)[:175].tolist())
    plan = plan_decode(code._layout, mode, present, list(range(128)))
    assert plan.method == "sc"
    assert 0 < len(plan.program.steps) <= 256 // 2 * 8


def test_a_row_is_copied_right_before_it_is_read_and_not_onto_itself():
    recorder = Recorder(3)
    total = recorder.add(recorder.add(0, 1), 2)
    program = Program.build(recorder, [total, 2, 0])
    assert [at for at, _, _ in program.copies] == [0, 1]
    inputs = np.arange(12.0).reshape(3, 4)
    out = np.full((3, 4), np.nan)
    out[1] = inputs[2]
    stamped = out[1].view()
    stamped.setflags(write=False)  # a copy onto itself would fail
    program.run([inputs[0], inputs[1], stamped], [out[0], stamped, out[2]], np.dtype(float), tile=3)
    np.testing.assert_array_equal(out, [inputs.sum(axis=0), inputs[2], inputs[0]])


def test_rows_that_interleave_are_no_row_in_place():
    """Their bounds overlap, their numbers do not."""
    program = Program.build(Recorder(1), [0])
    both = np.zeros((4, 2))
    both[:, 0] = range(1, 5)
    program.run([both[:, 0]], [both[:, 1]], np.dtype(float))
    np.testing.assert_array_equal(both[:, 1], both[:, 0])
