"""The papers' qualitative results hold at toy size; every script also draws its picture."""

from dataclasses import fields
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

FOLDER = Path(__file__).parents[2] / "examples" / "reproductions"
SHARED = {"laboratory", "network_problems", "specified", "toy_problems"}
SCRIPTS = sorted({path.stem for path in FOLDER.glob("*.py")} - SHARED)


def ascending(*values):
    return all(a < b for a, b in pairwise(values))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_picture_is_drawn(name, figures, tmp_path):
    path = tmp_path / "figure.png"
    import_module(name).picture(figures(name), path)
    assert min(image.imread(path).shape[:2]) > 300


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_table_tells_of_every_script(name):
    assert f"[{name}.py]({name}.py)" in (FOLDER / "README.md").read_text(encoding="utf-8")


def test_a_script_draws_into_the_folder_it_is_run_in(figures, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(FOLDER / "nested_2022.py")])
    module = import_module("nested_2022")
    import_module("laboratory").main(lambda: figures("nested_2022"), module.picture)
    assert (tmp_path / "nested_2022.png").stat().st_size < 60_000
    printed = capsys.readouterr().out
    assert all(field.name in printed for field in fields(figures("nested_2022")))


def test_an_option_is_no_name_of_a_picture(figures, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["nested_2022.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        import_module("laboratory").main(lambda: figures("nested_2022"), import_module("nested_2022").picture)
    assert ended.value.code == 0
    assert not list(tmp_path.iterdir())
    assert "the picture" in capsys.readouterr().out


def test_tandon_coded_is_fast_and_right(figures):
    found = figures("tandon_2016")
    seconds, final = found.seconds, found.final_excess
    assert ascending(
        *(seconds[name] for name in ("fractional repetition", "cyclic repetition", "wait for all")),
    )
    assert seconds["cyclic repetition"] < 0.6 * seconds["wait for all"]
    assert seconds["ignore stragglers"] < seconds["fractional repetition"]
    for exact in ("fractional repetition", "cyclic repetition", "wait for all"):
        assert final[exact] < 1e-6 * final["ignore stragglers"]
    assert final["cyclic repetition"] == pytest.approx(final["wait for all"], rel=1e-3)


def test_ye_abbe_shorter_messages_pay_on_slow_links(figures):
    found = figures("ye_abbe_2018")
    uncoded, whole, folded = found.best.values()
    assert ascending(folded, whole, uncoded)
    assert folded < 0.95 * whole
    d, m = min(found.seconds, key=found.seconds.__getitem__)
    assert m > 1
    assert d < 8
    assert found.message_length["message"] * m == found.message_length["gradient"]
    assert found.decode_error < 1e-12


def test_coded_reduce_tree_beats_one_master(figures):
    found = figures("coded_reduce_2019")
    assert found.load["CodedReduce"] == pytest.approx(0.225)
    assert found.load["CodedReduce"] < found.load["gradient code"]
    assert ascending(*(found.seconds[n] for n in ("CodedReduce tree", "gradient code, one master")))
    assert found.seconds["gradient code, one master"] < found.seconds["uncoded, one master"]
    assert ascending(*found.by_size.values())  # the more workers, the more
    assert found.tree_error < 1e-12


def test_erasurehead_is_first_at_the_target(figures):
    found = figures("erasurehead_2019")
    names = ("ErasureHead, half", "fractional repetition", "wait for all")
    assert ascending(*(found.to_target[name] for name in names))
    assert ascending(*(found.runs[name].per_round for name in names))
    # Its gradients are noisy: it does not end where exact ones do.
    assert found.runs["ErasureHead, half"].floor > 1e3 * found.runs["fractional repetition"].floor


def test_sparse_graphs_repetition_is_best_by_chance_and_worst_by_malice(figures):
    found = figures("sparse_graphs_2017")
    for i in range(len(found.optimal["FRC"])):
        assert ascending(*(found.optimal[name][i] for name in ("FRC", "regular graph", "Bernoulli")))
        assert found.one_step["FRC"][i] == pytest.approx(found.one_step["regular graph"][i])
        assert found.one_step["regular graph"][i] < found.one_step["trimmed Bernoulli"][i]
        assert found.one_step["trimmed Bernoulli"][i] < found.one_step["Bernoulli"][i]
        for name in ("regular graph", "Bernoulli"):
            assert found.optimal[name][i] < found.one_step[name][i]
    at_a_fifth = import_module("sparse_graphs_2017").LOST.index(20)
    assert 100 * found.one_step["FRC"][at_a_fifth] == pytest.approx(4.79798, abs=1e-4)
    assert 100 * found.optimal["FRC"][at_a_fifth] == pytest.approx(0.0205931, abs=1e-6)
    assert 100 * found.optimal["regular graph"][at_a_fifth] == pytest.approx(1.153, abs=0.5)
    assert found.adversarial["regular graph"] < 0.7 * found.adversarial["FRC"]


def test_block_model_trades_chance_for_malice(figures):
    found = figures("block_model_2018")
    assert ascending(*reversed(list(found.random.values())[1:]))
    assert ascending(*list(found.adversary.values())[1:])
    assert found.adversary[1.0] == pytest.approx(20)
    assert found.random[1.0] < 0.2
    assert found.adversary[0.5] == pytest.approx(6.4, abs=1.0)
    assert found.random[0.5] == pytest.approx(4.38, abs=0.7)
    for ratio in found.ensemble.values():
        assert ratio == pytest.approx(1, abs=0.05)


def test_expander_keeps_its_bound(figures):
    found = figures("expander_2017")
    assert found.worst["optimal"] == pytest.approx([0.181818, 0.470588, 1, 2.285714], abs=1e-5)
    assert found.worst["one step"] == pytest.approx([0.288066, 0.763889, 1.564626, 2.962963], abs=1e-5)
    for bound, one_step, optimal, ignoring in zip(*found.worst.values(), strict=True):
        assert optimal < one_step <= bound + 1e-12 < ignoring
    assert found.at_same_load["expander"] < 0.6 * found.at_same_load["repetition"]
    assert found.floors["expander"] < 0.5 * found.floors["ignoring"]
    assert found.cyclic_mds_error < 1e-9


def test_block_designs_cannot_be_attacked(figures):
    found = figures("block_designs_2019")
    assert found.worst["block design"] == pytest.approx(found.mean["block design"])
    assert 21 * found.worst["block design"][1] == pytest.approx(0.347826, abs=1e-6)
    five = 4
    assert ascending(*(found.worst[name][five] for name in ("block design", "Bernoulli", "repetition")))
    assert found.mean["repetition"][five] < found.mean["block design"][five]
    assert ascending(*(found.spread[name] for name in ("block design", "Bernoulli", "repetition")))
    # The caveat: with optimal weights a plain circulant is better against few stragglers, worse against many.
    design, circulant = found.small["block design"], found.small["circulant"]
    assert design == pytest.approx([0.25, 4 / 7, 1, 1.6, 2.5])
    assert circulant == pytest.approx([0.076923, 0.25, 1, 2.5, 3.4], abs=1e-5)


def test_soft_designs_and_products(figures):
    found = figures("soft_bibd_2021")
    for soft, formula in zip(found.mean["soft design"], found.mean["design formula"], strict=True):
        assert 0.5 * formula < soft < formula
    for soft, drawn in zip(found.worst["soft design"], found.worst["Bernoulli"], strict=True):
        assert soft < 0.6 * drawn
    assert found.worst["soft design"][-1] < 0.5 * found.worst["repetition"][-1]
    assert found.product_decodes[3] == 1
    assert found.product_decodes[4] == pytest.approx(117 / 126)
    assert found.fano_product == pytest.approx(5.6071429)


def test_graphs_are_good_at_both(figures):
    found = figures("graph_2020")
    for one, best, least in zip(*found.random.values(), strict=True):
        assert best < 0.4 * one
        assert best > 0.5 * least
    assert found.random["graph, optimal"][1] < 2.5 * found.random["least possible"][1]
    for graph, repetition, bound in zip(
        found.adversarial["graph"], found.adversarial["repetition"], found.bound, strict=True
    ):
        assert graph <= 0.6 * repetition
        assert graph <= bound
    assert found.floors["optimal"] < 0.3 * found.floors["one-step"]


def test_dynamic_clusters_are_fastest(figures):
    found = figures("clusters_2020")
    assert ascending(*(found.seconds[n] for n in ("dynamic clusters", "static clusters", "one code")))
    assert found.seconds["dynamic clusters"] < 0.9 * found.seconds["static clusters"]
    assert found.slow_share == pytest.approx(0.2, abs=0.05)
    assert found.burst == pytest.approx(5, abs=1)


def test_nested_codes_adapt(figures):
    found = figures("nested_2022")
    assert found.never_slower
    nested, fixed, uncoded = (found.seconds[name] for name in ("nested", "fixed code", "uncoded"))
    assert ascending(*nested)
    assert all(a < 0.9 * b for a, b in zip(nested[:-1], fixed[:-1], strict=True))
    assert nested[-1] == pytest.approx(fixed[-1], rel=0.05)
    assert nested[0] == pytest.approx(uncoded[0], rel=0.01)
    assert all(a < 0.6 * b for a, b in zip(nested[1:], uncoded[1:], strict=True))
    assert found.spec_example["nested"] == 2
    assert found.decode_error < 1e-10


def test_heterogeneous_weights_have_less_variance(figures):
    found = figures("heterogeneous_2025")
    names = ("placement by chance, too", "weights by chance", "equal weights")
    assert ascending(*(found.error[name] for name in names))
    assert ascending(*(found.floors[name] for name in names))
    for name in names:
        assert found.measured[name] == pytest.approx(found.error[name], rel=0.1)
        assert found.bias[name] < 0.06


def test_thresholds_show_every_specified_figure(figures):
    found, tables = figures("thresholds"), import_module("specified")
    assert list(found.awaited) == [row.label for row in tables.ARRIVALS]
    assert list(found.error) == [row.label for row in tables.ERRORS]


def test_multi_message_completion_times_of_the_literature(figures):
    found = figures("multi_message_2019")
    # By the subtasks of a worker, 2 to 5: seconds, and messages in whole numbers, rounded or cut.
    published = {
        "uncoded, each message": ((0.248, 0.205, 0.182, 0.168), (31, 37, 40, 42)),
        "Lagrange code, each message": ((0.547, 0.212, 0.168, 0.149), (39, 39, 39, 39)),
        "clusters, each message": ((0.313, 0.283, 0.251, 0.199), (34, 44, 50, 48)),
        "gradient code, one message": ((0.5395, 0.659, 0.745, 0.806), (19, 18, 17, 16)),
        "Lagrange code, one message": ((0.539, 0.331, 0.271, 0.2588), (19, 13, 9, 7)),
        "one subtask each": ((0.3698,) * 4, (20,) * 4),
    }
    for name, (seconds, messages) in published.items():
        assert (np.abs(found.seconds[name] - seconds) <= 3 * found.errors[name] + 0.0005).all(), name
        assert (np.abs(found.messages[name] - messages) <= 3 * found.message_errors[name] + 1.0).all(), name


def test_multi_message_exact_test_closes_earlier_than_counting_levels(figures):
    found = figures("multi_message_2019")
    assert found.gained_by_exact >= -1e-12
    assert (found.seconds["clusters, exact test"] < 0.85 * found.seconds["clusters, each message"]).all()


def test_rateless_codes_are_near_perfect_balance(figures):
    found = figures("rateless_2019")
    names = ("perfect balance", "rateless", "MDS, 8 of 10", "two copies", "uncoded")
    assert ascending(*(found.seconds[name] for name in names))
    assert found.seconds["rateless"] < 1.1 * found.seconds["perfect balance"]
    assert found.seconds["rateless"] < 0.85 * found.seconds["MDS, 8 of 10"]
    assert found.computed["rateless"] < 1.15
    assert found.idle["rateless"] < 0.05 < found.idle["MDS, 8 of 10"]


def test_polar_codes_are_as_fast_as_mds_and_cheaper_to_decode(figures):
    found = figures("polar_2019")
    uncoded, copies, polar, mds = found.seconds.values()
    assert ascending(mds, polar, copies, uncoded)
    assert polar < 1.05 * mds
    assert polar < 0.5 * copies
    peeled, combined = found.operations.values()
    assert peeled < 0.1 * combined
    assert max(list(found.spread.values())[2:]) < 0.1 < min(list(found.spread.values())[:2])


def test_encoded_steps_settle_where_the_guarantee_says(figures):
    found = figures("encoded_2017")
    for name, measured in (("hadamard", 0.0013), ("haar", 0.003), ("replication", 0.003), ("uncoded", 0.005)):
        assert 0 <= found.settled[24, name] < 2.5 * measured
    assert found.settled[16, "hadamard"] < 0.7 * found.settled[16, "uncoded"]
    assert found.worst["hadamard"] < 0.6 * found.worst["uncoded"]
    seconds, excess = found.in_time[16]
    reached = {wait: t[np.argmax(each < 0.01)] for wait, (t, each) in found.in_time.items()}
    assert ascending(*reached.values())
    assert found.in_time[32][1][-1] < 1e-10 < excess[seconds > 50].min()


def test_sketched_newton_needs_few_steps_and_waits_for_few(figures):
    found = figures("sketched_newton_2020")
    seconds = found.seconds
    assert ascending(
        *(seconds[name] for name in ("newton", "sketched newton", "l-bfgs", "nesterov", "gradient descent"))
    )
    assert seconds["sketched newton"] < 0.3 * seconds["nesterov"]
    assert found.steps[2] > 2 * found.steps[20]
    assert found.steps[10] >= found.steps[50]
    assert found.waiting["until decodable"] < 0.3 * found.waiting["wait for all"]


def test_moments_partly_decoded_lead_to_the_solution(figures):
    found = figures("moment_2018")
    names = ("moments, 2 rounds", "moments, no peeling", "wait for all", "data dropped")
    assert ascending(*(found.seconds_to_1e_6[name] for name in names))
    assert found.seconds_to_1e_6["moments, 2 rounds"] < 0.5 * found.seconds_to_1e_6["wait for all"]
    assert found.final["moments, 2 rounds"] < 1e-9
    assert found.final["data dropped"] > 1e-4
    assert found.incomplete > 0.3
    measured, theory = found.unknown.values()
    assert np.abs(measured - theory).max() < 0.02
