"""State that is loaded into the optimiser: what fits its parameter works, everything else is refused by name."""

import copy

import geoopt
import pytest
import torch
from geoopt import ManifoldParameter
from torch import nn

from hyperbolic.kernels import riemannian_steps
from hyperbolic.kernels.riemannian_steps import Rows, Rule
from hyperbolic.manifolds import Klein, Lorentz, PoincareBall
from hyperbolic.optim import RiemannianAdam, RiemannianLBFGS, RiemannianOptimizer, RiemannianSGD
from tests.tolerances import tolerance

KINDS = ["matrix", "matrix of rows", "Lorentz", "PoincareBall", "Klein", "PoincareBall without exp", "stack of points"]
KEYS = ["momentum", "square", "largest_square"]


def stepped(kind: str, **options) -> tuple[nn.Parameter, RiemannianOptimizer]:
    """A parameter of this kind after one step of AMSGrad."""
    torch.manual_seed(0)
    if kind.startswith("matrix"):
        p = nn.Parameter(torch.randn(6, 4))
    else:
        manifold = {"Lorentz": Lorentz, "Klein": Klein}.get(kind, PoincareBall)(1.0)
        sizes = (2, 3, 4) if kind.startswith("stack") else (6, 4)
        p = ManifoldParameter(manifold.random(*sizes, std=0.1), manifold=manifold)
    options = {"amsgrad": True, "lazy": "rows" in kind, "exact_exp": "without" not in kind, **options}
    optimizer = RiemannianAdam([p], lr=0.1, **options)
    step(p, optimizer)
    return p, optimizer


def step(p: nn.Parameter, optimizer: RiemannianOptimizer) -> torch.Tensor:
    p.grad = torch.linspace(-1, 1, p.numel()).view_as(p.detach().as_subclass(torch.Tensor))
    optimizer.step()
    return p.detach().as_subclass(torch.Tensor).clone()


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("kind", KINDS)
def test_state_of_another_shape_is_refused_and_nothing_is_loaded(kind, key):
    p, optimizer = stepped(kind)
    twin_p, twin = stepped(kind)
    for shape in ((1,), (2, 1), (7, *p.shape[1:]), (*p.shape, 1), ()):
        saved = copy.deepcopy(optimizer.state_dict())
        needed = tuple(saved["state"][0][key].shape)
        saved["state"][0][key] = torch.zeros(shape)
        with pytest.raises(ValueError, match=rf"'{key}' of parameter 0, .* has shape .* and needs ") as error:
            optimizer.load_state_dict(saved)
        assert f"shape {shape} and needs {needed}" in str(error.value)
    assert torch.equal(step(p, optimizer), step(twin_p, twin))


@pytest.mark.usefixtures("each_path")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", ["dtype", "strides", "expanded"])
def test_state_of_another_dtype_or_layout_in_memory_works(kind, change):
    p, optimizer = stepped(kind)
    twin_p, twin = stepped(kind)
    saved = copy.deepcopy(optimizer.state_dict())
    for key in KEYS:
        value = saved["state"][0][key]
        if change == "expanded":
            value.fill_(0.01)
            twin.state[twin_p][key].fill_(0.01)
        changes = {
            "dtype": value.double,
            "strides": lambda value=value: torch.stack([value, value], -1)[..., 0],
            "expanded": lambda value=value: value.new_full((1,), 0.01).expand(value.shape),
        }
        saved["state"][0][key] = changes[change]()
    optimizer.load_state_dict(saved)
    torch.testing.assert_close(step(p, optimizer), step(twin_p, twin), **tolerance(torch.float32, "formula"))


@pytest.mark.parametrize("kind", ["matrix", "Lorentz"])
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("momentum", torch.zeros(6, 4, dtype=torch.long), "floating-point numbers, got torch.strided of torch.int64"),
        ("momentum", torch.zeros(6, 4).to_sparse(), "a dense tensor .*, got torch.sparse_coo"),
        ("square", [0.0] * 24, "a dense tensor"),
        ("exp_avg", torch.zeros(6, 4), "unknown; there are step, momentum, square, largest_square"),
        ("step", "1", "must be a number of steps, got '1'"),
        ("step", torch.ones(()), "must be a number of steps"),
        ("step", -1, "must be a number of steps, got -1"),
        ("step", 10**30, "must be a number of steps"),
    ],
)
def test_what_is_no_state_is_refused(kind, key, value, message):
    _, optimizer = stepped(kind)
    saved = optimizer.state_dict()
    saved["state"][0] = {**saved["state"][0], key: value}
    with pytest.raises(ValueError, match=rf"optimiser: the state '{key}' of parameter 0, .*{message}"):
        optimizer.load_state_dict(saved)


def test_the_message_counts_parameters_over_all_groups():
    parameters = [nn.Parameter(torch.randn(3)) for _ in range(3)]
    optimizer = RiemannianSGD([{"params": parameters[:2]}, {"params": parameters[2:]}], momentum=0.9)
    sum(p.sum() for p in parameters).backward()
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][2]["momentum"] = torch.zeros(4)
    with pytest.raises(ValueError, match=r"'momentum' of parameter 2, of shape \(3,\), has shape \(4,\)"):
        optimizer.load_state_dict(saved)


@pytest.mark.parametrize("key", ["momentum", "square", "largest"])
def test_no_address_of_state_of_another_shape_reaches_cpp(each_path, key):
    rows = Rows(*(torch.zeros(6, 4) for _ in range(3)), torch.zeros(6, 1), torch.zeros(6, 1))
    rows = rows._replace(**{key: getattr(rows, key)[:2]})
    if each_path == "fast":
        with pytest.raises(ValueError, match=r"kernels take a tensor of shape \(6, [14]\)"):
            riemannian_steps.step(rows, PoincareBall(), Rule(1.0))


@pytest.mark.parametrize("kind", ["matrix", "Lorentz"])
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("lr", -1.0, "lr must not be negative"),
        ("lr", float("nan"), "lr must be a number, got nan"),
        ("lr", "0.1", "lr must be a number, got '0.1'"),
        ("betas", ("0.9", "0.999"), r"betas must lie in \[0, 1\)"),
        ("betas", 0.9, "betas must be two numbers"),
        ("betas", (0.9, 1.0), r"betas must lie in \[0, 1\)"),
        ("eps", float("inf"), "eps must be a number, got inf"),
        ("momentum", None, "momentum must be a number, got None"),
        ("max_radius", "far", "max_radius must be positive"),
        ("amsgrad", 1, "amsgrad must be true or false"),
        ("rule", ["adam"], "rule must be 'adam', 'adagrad' or 'sgd'"),
        ("fused", True, "unknown option"),
    ],
)
def test_options_that_are_out_of_range_are_refused_and_nothing_is_loaded(kind, key, value, message):
    p, optimizer = stepped(kind)
    twin_p, twin = stepped(kind)
    saved = copy.deepcopy(optimizer.state_dict())
    saved["param_groups"][0][key] = value
    with pytest.raises(ValueError, match=f"optimiser: .*{message}"):
        optimizer.load_state_dict(saved)
    assert torch.equal(step(p, optimizer), step(twin_p, twin))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("key", "value"), [("momentum", float("nan")), ("square", float("inf")), ("square", -1.0)])
def test_state_that_no_step_leaves_is_refused(kind, key, value):
    _, optimizer = stepped(kind)
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][0][key].view(-1)[1] = value
    with pytest.raises(ValueError, match=rf"'{key}' of parameter 0, .* (is not finite|has a negative square)"):
        optimizer.load_state_dict(saved)


def test_what_schedulers_of_torch_leave_in_groups_is_loaded():
    optimizer = RiemannianAdam([nn.Parameter(torch.ones(2))])
    torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=5)
    optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer.param_groups[0]["max_lr"] == 0.1


def test_state_of_another_rule_is_refused():
    p, adam = stepped("Lorentz")
    sgd = RiemannianSGD([p], lr=0.1)
    with pytest.raises(ValueError, match="the state is of the rule 'adam', and the optimiser's is 'sgd'"):
        sgd.load_state_dict(adam.state_dict())
    assert sgd.param_groups[0]["rule"] == "sgd"


def test_points_on_a_manifold_of_others_are_refused():
    point = ManifoldParameter(torch.eye(2), manifold=geoopt.Stiefel())
    with pytest.raises(ValueError, match=r"shape \(2, 2\) lies on CanonicalStiefel of geoopt"):
        RiemannianAdam([point])
    with pytest.raises(ValueError, match="lies on CanonicalStiefel of geoopt"):
        RiemannianLBFGS([point])
    RiemannianAdam([ManifoldParameter(torch.eye(2), manifold=geoopt.Euclidean())])
