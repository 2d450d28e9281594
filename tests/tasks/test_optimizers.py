"""The optimiser of a task, and settings that its rule does not follow."""

import pytest
from torch import nn

from tasks.errors import UserError
from tasks.optimizers import check_rules, make_optimizer

ROLES = {"embeddings": {}, "biases": {}, "matrices": {}}


def make(**settings):
    check_rules(ROLES | settings)
    return make_optimizer(nn.Linear(2, 2), **(ROLES | settings))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rule": "adam", "momentum": 0.9}, r"optim.momentum=0.9 does nothing with optim.rule=adam; it is for sgd"),
        ({"rule": "adagrad", "momentum": 0.9}, "optim.momentum=0.9 does nothing with optim.rule=adagrad"),
        ({"rule": "sgd", "amsgrad": True}, "optim.amsgrad=True does nothing with optim.rule=sgd; it is for adam"),
        ({"rule": "sgd", "amsgrad": True, "biases": {"rule": "adagrad"}}, "optim.rule=adagrad and sgd"),
    ],
)
def test_a_setting_that_no_rule_follows_is_refused(settings, said):
    with pytest.raises(UserError, match=said):
        make(lr=0.1, **settings)


def test_a_role_of_its_own_rule_may_follow_it():
    groups = make(lr=0.1, rule="adam", momentum=0.9, matrices={"rule": "sgd"}, vectors={"rule": "adam"}).param_groups
    assert {group["rule"] for group in groups} == {"adam", "sgd"}
    assert make(lr=0.1, rule="sgd", momentum=0.9).param_groups[0]["momentum"] == 0.9
