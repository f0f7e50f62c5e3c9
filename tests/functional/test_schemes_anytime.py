"""A fixed time of computing: anytime SGD averages models, anytime minibatch gradients."""


def test_models_weighted_by_work_win_with_decaying_steps(figures):
    by_work, uniform, waiting = figures("policy_anytime_2018").at_checkpoints.values()
    assert (by_work < uniform).all()
    assert (uniform < waiting).all()


def test_with_constant_steps_the_uniform_average_has_the_lower_floor(figures):
    by_work, uniform = figures("policy_anytime_2018").floors.values()
    assert uniform < 0.7 * by_work


def test_anytime_minibatch_beats_waiting_and_dropping(figures):
    found = figures("policy_minibatch_2019")
    assert found.samples >= 60
    wait, drop2, drop5, amb = found.at_checkpoints.values()
    assert (amb < wait).all()
    assert (2 * amb < wait)[:3].all()
    assert (amb < drop2)[2:].all()
    assert (amb < drop5)[2:].all()
