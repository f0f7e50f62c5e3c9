"""What makes asynchronous training stable: global batches, gaps, staleness."""


def test_global_batches_keep_the_step_length_of_synchronous_training(figures):
    found = figures("policy_gba_2022")
    sync, alone, gba, _ = found.at_checkpoints.values()
    assert found.updates["GBA, up to 4 late"] >= 5 * found.updates["synchronous"]
    assert (5 * gba <= sync).all()
    assert (alone > 1e3).all()
    assert 0 < found.dropped["GBA, up to 4 late"] < found.dropped["GBA, up to 1 late"] < 0.1


def test_gaps_keep_a_long_step_stable(figures):
    found = figures("policy_gap_aware_2020")
    plain, aware, raw, applied = found.long_at_10_30.values()
    assert plain[1] > found.start
    assert max(aware[1], raw[1], applied[1]) < found.start
    assert raw[0] <= aware[0] / 5
    assert applied[0] <= aware[0] / 2


def test_gaps_beat_both_at_a_shorter_step(figures):
    plain, aware, raw = (excess[29::10] for excess in figures("policy_gap_aware_2020").short_step.values())
    assert (raw < plain).all()
    assert (raw < aware).all()
