"""The optimiser of a task from the settings of `optim`."""

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from hyperbolic.optim import RiemannianLBFGS, RiemannianOptimizer, parameter_groups
from tasks.errors import UserError

RULE_OF = {"momentum": "sgd", "amsgrad": "adam"}  # settings that one rule alone follows


def make_optimizer(
    module: nn.Module,
    embeddings: dict[str, Any],
    biases: dict[str, Any],
    matrices: dict[str, Any],
    vectors: dict[str, Any] | None = None,  # runs from before this setting have none
    lbfgs: dict[str, Any] | None = None,  # likewise
    **settings: Any,
) -> Optimizer:
    """The optimiser of a module: `settings` for all parameters, other values for one kind of them where not None.

    lbfgs: settings of rule "lbfgs", which takes of the others lr alone and raises UserError for those that it would
    have to follow.
    """
    roles = {"embeddings": embeddings, "biases": biases, "matrices": matrices, "vectors": vectors or {}}
    own = {role: {k: v for k, v in node.items() if v is not None} for role, node in roles.items()}
    if settings.get("rule") != "lbfgs":
        apart = settings.get("clip") == "tensor"  # as in Ganea et al., whose gates, cells and classes are tensors each
        return RiemannianOptimizer(parameter_groups(module, **own, apart=apart), **settings)
    idle = {"max_grad_norm": None, "weight_decay": 0, "momentum": 0, "amsgrad": False, "lazy": False}
    own = {role: node for role, node in own.items() if node}
    wrong = [name for name, value in idle.items() if settings.get(name, value) != value]
    if names := [*wrong, *own]:
        value = own.get(names[0], settings.get(names[0]))
        raise UserError(f"optim.{names[0]}={value} does nothing with optim.rule=lbfgs; take optim=lbfgs as it stands.")
    return RiemannianLBFGS(parameter_groups(module), lr=settings["lr"], **(lbfgs or {}))


def check_rules(settings: Mapping[str, Any]) -> None:
    """Raises UserError for a setting of `optim` that none of its rules follows."""
    nodes = [settings, *(node for node in settings.values() if isinstance(node, Mapping))]
    rules = [node["rule"] for node in nodes if node.get("rule") is not None]
    for name, rule in RULE_OF.items():
        if settings.get(name) and rule not in rules and "lbfgs" not in rules:
            raise UserError(
                f"optim.{name}={settings[name]} does nothing with optim.rule={' and '.join(sorted(set(rules)))}; it is "
                f"for {rule}."
            )
