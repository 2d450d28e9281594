"""One optimiser for all parameters: Riemannian Adam, Adagrad or SGD on manifold parameters, the usual ones on the rest.

Clipping acts on the Euclidean gradients, before the Riemannian rescale, as in all official codes. Per parameter
group: ``rule`` ("adam", "adagrad" or "sgd"), ``lr``, ``betas``, ``eps``, ``amsgrad``, ``momentum``, ``weight_decay``,
``decoupled``, ``exact_exp``, ``lazy``, ``max_radius``, ``stacked``. Sources: Bonnabel 2013 (Riemannian SGD), Bécigneul
& Ganea 2019 (Riemannian Adam, Adagrad and AMSGrad), Duchi et al. 2011 (Adagrad). :class:`RiemannianLBFGS` is for a loss
of all data.
"""

from hyperbolic.optim.lbfgs import RiemannianLBFGS
from hyperbolic.optim.optimizer import RiemannianAdam, RiemannianOptimizer, RiemannianSGD
from hyperbolic.optim.roles import ROLES, parameter_groups, parameter_role

__all__ = [
    "ROLES", "RiemannianAdam", "RiemannianLBFGS", "RiemannianOptimizer", "RiemannianSGD", "parameter_groups",
    "parameter_role",
]  # fmt: skip
