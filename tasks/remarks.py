"""What a run says of a result that shows that little was learned, each in one line with what to try."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from hyperbolic.geometry import make_geometry
from hyperbolic.optim import parameter_groups
from hyperbolic.optim.roles import ROLES
from tasks.base import Task
from tasks.classification import ClassificationTask

ABOVE = 2.0  # standard errors by which an accuracy is to be above the largest class's share
MARGIN = 0.1  # a part of that share: an accuracy that is further above it, but not for certain, is of a small test
AUC_MARGIN = 0.1  # an area that is further above 0.5, but not for certain, is of a small test
USELESS_BLEU = 5.0  # below which a translation has hardly a phrase of the right one
SMALL_BATCH = 2048  # pieces, for texts of a few thousand pairs
VALIDATIONS = 3  # so many, the first included, say whether a metric moves
HEART = 0.5  # of the first training loss: one that falls below it is learned by heart where no metric rises
LITTLE, WORSE = "little was learned", "worse than a guess"  # how lines begin that say what to try against it
FOLLOWED_BY = (  # settings of the optimiser by how they begin, and which rules or schedules have them
    ("plateau.", "schedule", ("plateau",)),
    ("lbfgs.", "rule", ("lbfgs",)),
    ("betas", "rule", ("adam",)),
    ("eps=", "rule", ("adam", "adagrad")),
)
BOUNDS = {"bleu": 100.0, "mean_rank": 1.0, "perplexity": 1.0}  # best values that are not 1 (max) or 0 (min)


def remarks(task: Task, record: Mapping[str, Any], history: Sequence[Mapping[str, float]]) -> list[str]:
    """Lines on the result of a training or a test; none where there is nothing to say.

    record: of the run. history: its rows, see `checkpoints.History`; none of a test.
    """
    lines, unmoved = [], None
    if record["config"]["optim"]["rule"] != "lbfgs" and not task.reconstructs:  # of L-BFGS an epoch is a minimisation
        unmoved = on_selection(task.select, task.select_mode, history, record["config"]["optim"]["lr"])
    longer = unmoved is None or trend(history) == "open"
    if isinstance(task, ClassificationTask) and "test" in task.confusion:
        data, module = (record["config"]["task"][node] for node in ("data", "module"))
        remedies = ["word vectors (task.data.vectors)"] if "vectors" in data and not has_vectors(record) else []
        if "starts" in module and record["config"]["optim"]["rule"] != "lbfgs":
            remedies.append("optim=lbfgs trainer=lbfgs task.module.starts=5 task.data.batch_size=100000")
        balance = "class_weights" in module and task.class_weights != "balanced"
        has_encoder = record["config"]["encoder"] is not None
        lines += on_classes(task.classes, task.confusion["test"], remedies, balance, longer, has_encoder)
        if has_encoder and lines and lines[0].startswith(LITTLE) and not record["config"].get("check_points"):
            lines += on_own_encoder(record["config"]["encoder"])
    auc, edges = record["metrics"].get("test/auc"), record["data"]["counts"].get("test", {}).get("edges")
    if auc is not None and edges and (line := on_auc(auc, edges, longer)):
        lines.append(line)
    if (bleu := record["metrics"].get("test/bleu")) is not None and bleu < USELESS_BLEU:
        lines.append(on_bleu(bleu, record["config"]["task"]["data"]["batch_tokens"], history, longer))
    says_why = any(line.startswith((LITTLE, WORSE)) for line in lines)
    if unmoved is not None and not (longer and says_why):
        lines.append(unmoved)
    lines += on_limits(record["config"]["trainer"], record["metrics"], record["data"]["share"])
    lines += on_curvature(record["config"]["geometry"])
    lines += on_roles(record.get("overrides", []), task)
    lines += on_optimizer(record.get("overrides", []), record["config"]["optim"])
    lines += on_warmup(record["config"]["optim"], history)
    lines += on_min_epochs(record.get("overrides", []), record["config"]["trainer"].get("patience"))
    lines += on_fidelity(record["config"])
    return lines + task.remarks()


def on_own_encoder(encoder: Mapping[str, Any]) -> list[str]:
    """How to see whether an encoder of the user's own leaves its space. encoder: of a configuration."""
    target = str(encoder["_target_"])
    if target.startswith("hyperbolic."):
        return []
    return [f"check_points=true says whether what {target} returns are points of its space."]


def on_limits(trainer: Mapping[str, Any], metrics: Mapping[str, float], share: float = 0.0) -> list[str]:
    """Which metrics are of a part of their examples, and not one that was drawn. share: of the test that was used, at
    least."""
    cut = []
    for split in ("val", "test"):
        limit = trainer.get(f"limit_{split}_batches", 1.0)
        some = limit > 0 if type(limit) is int else 0 < limit < 1  # 1: a batch; 1.0: all
        if split == "test" and share >= 1:  # a limit that is no smaller than the test
            continue
        if some and any(name.startswith(f"{split}/") for name in metrics):
            cut.append(f"{split}/... of trainer.limit_{split}_batches={limit}")
    if not cut:
        return []
    which = "the first, which hold the shortest texts or the first relations"
    return [f"{' and '.join(cut)} are of a part of the batches, {which}: no numbers of the whole."]


def on_curvature(values: Mapping[str, Any]) -> list[str]:
    """Whether `geometry.c` was set where nothing is curved. values: the geometry of a configuration."""
    geometry = make_geometry(**{key: value for key, value in values.items() if key != "_target_"})
    if values.get("c") is None or any(part.manifold.is_curved for part in (geometry, *geometry.parts.values())):
        return []
    return [f"geometry.c={values['c']:g} changed nothing: geometry={geometry.name} is flat, and has no curvature."]


def on_roles(words: Sequence[str], model: nn.Module) -> list[str]:
    """Which words of the command line set something for a role of parameters of which the model has none."""
    there = {group["role"] for group in parameter_groups(model, vectors={"lr": 1.0})}
    there |= {"matrices"} if "vectors" in there else set()  # which have the settings of matrices
    absent = tuple(f"optim.{role}." for role in ROLES if role not in there)
    if not (idle := [word for word in words if absent and word.lstrip("+").startswith(absent)]):
        return []
    return [f"{' and '.join(idle)} changed nothing: the model has no such parameters (configs/optim/radam.yaml)."]


def on_optimizer(words: Sequence[str], optim: Mapping[str, Any]) -> list[str]:
    """Which words of the command line set what the optimiser's rules or its schedule do not have. optim: of a
    configuration."""
    roles = (optim.get(role) or {} for role in ROLES)
    chosen = {"schedule": [optim["schedule"]], "rule": [optim["rule"], *(r["rule"] for r in roles if r.get("rule"))]}
    lines = []
    for start, key, fitting in FOLLOWED_BY:
        idle = [word for word in words if word.lstrip("+").startswith(f"optim.{start}")]
        if idle and not set(chosen[key]).intersection(fitting):
            others = " and ".join(dict.fromkeys(chosen[key]))
            lines.append(f"{' and '.join(idle)} changed nothing: optim.{key} is {others}, not {' or '.join(fitting)}.")
    return lines


def on_warmup(optim: Mapping[str, Any], history: Sequence[Mapping[str, float]]) -> list[str]:
    """Whether a training ended before its learning rate had risen to the highest one. optim: of a configuration."""
    steps = int(max((row["step"] for row in history if "step" in row), default=0))
    if not 0 < steps < (warmup := optim.get("warmup_steps") or 0):
        return []
    rises = f"the learning rate rises for optim.warmup_steps={warmup} steps, and the run has {steps:,}"
    return [f"{rises}: it was never the highest. Take a shorter warm-up, or more epochs."]


def on_min_epochs(words: Sequence[str], patience: int | None) -> list[str]:
    """Which words of the command line set the least number of epochs of a run that nothing ends before its last."""
    idle = [word for word in words if re.match(r"\+*trainer\.min_epochs=\d", word) and patience is None]
    return [f"{word} changed nothing: without trainer.patience no run ends early." for word in idle]


def on_fidelity(config: Mapping[str, Any]) -> list[str]:
    """Whether `fidelity=code` was chosen where the paper's text and its program are the same here."""
    node = config["task"].get("fidelity") or {}
    if config["fidelity"] != "code" or node.get("code") != node.get("paper"):
        return []
    return [f"fidelity=code changed nothing: task={config['task']['name']} is the same with fidelity=paper."]


def has_vectors(record: Mapping[str, Any]) -> bool:
    """Whether words start from vectors."""
    return bool(record["data"].get("words", {}).get("vectors"))


def on_classes(
    classes: Sequence[str], confusion: Tensor, remedies: Sequence[str] = (), balance: bool = False, longer: bool = True,
    has_encoder: bool = True,
) -> list[str]:  # fmt: skip
    """Whether an accuracy is hardly above the share of the largest class, and which classes of the test are never
    predicted, or have no example in it. confusion (K, K): examples by right class and predicted one. remedies: what to
    try against the first besides what any task has. balance: `class_weights` can be set, and are not balanced. longer:
    more epochs may help."""
    gold, predicted = confusion.sum(1), confusion.sum(0)
    total, correct = float(gold.sum()), float(confusion.diagonal().sum())
    largest = int(gold.argmax())
    share = float(gold[largest]) / total
    lines = []
    if correct / total < share + ABOVE * (share * (1 - share) / total) ** 0.5:
        what = f"test/accuracy is {correct / total:.3f}, and who always says {classes[largest]} has {share:.3f}"
        if correct / total > share + MARGIN * share:
            lines.append(f"{what}: {int(total)} examples of a test are too few to tell these apart for certain.")
        else:
            remedy = ", ".join([*remedies, *["more epochs"] * longer, "another optim.lr" + has_encoder * " or encoder"])
            lines.append(f"{LITTLE}: {what}. Try {remedy}.")
    if missing := [name for name, n in zip(classes, gold.tolist(), strict=True) if not n]:
        more = f" and {len(missing) - 5} more classes" if len(missing) > 5 else ""
        lines.append(f"no example in the test: {', '.join(missing[:5])}{more}; the test says nothing of these.")
    if never := [k for k in range(len(classes)) if gold[k] and not predicted[k]]:
        names = ", ".join(f"{classes[k]} ({int(gold[k]):,} of {int(total):,})" for k in never[:5])
        more = f" and {len(never) - 5} more classes" if len(never) > 5 else ""
        rare = all(gold[k] < gold[largest] / 2 for k in never)
        remedy = ", or ".join(["task.module.class_weights=balanced"] * (balance and rare) + ["more epochs"] * longer)
        lines.append(f"never predicted in the test: {names}{more}.{f' Try {remedy}.' if remedy else ''}")
    return lines


def on_auc(auc: float, edges: int, longer: bool = True) -> str | None:
    """Whether the area under the ROC curve is below or hardly above 0.5, that of a guess, whose standard error over n
    edges and as many pairs without one is sqrt((2 n + 1) / (12 n^2)), that of the Mann-Whitney statistic. longer: more
    epochs may help."""
    error = ((2 * edges + 1) / 12) ** 0.5 / edges
    if auc >= 0.5 + ABOVE * error:
        return None
    what = f"test/auc is {auc:.3f}, and a guess has 0.5 ± {error:.3f} with {edges} edges in the test"
    if auc < 0.5 - ABOVE * error:
        return (
            f"{WORSE}: {what}: what was learned of the edges of train does not hold for those of the test. "
            "Try more edges in train (task.data.shares), fewer epochs, or another geometry."
        )
    if auc > 0.5 + AUC_MARGIN:
        return f"{what}: these are too few to tell the two apart for certain; task.data.shares can give the test more."
    return f"{LITTLE}: {what}. Try {'more epochs, ' * longer}another optim.lr, encoder or geometry."


def on_bleu(
    bleu: float, batch_tokens: int | None, history: Sequence[Mapping[str, float]], longer: bool = True
) -> str:
    """What to try against translations that are of no use: small texts need smaller batches, or they have few steps."""
    steps = int(max((row["step"] for row in history if "step" in row), default=0))
    after = f" after {steps:,} steps" if steps else ""
    is_large = batch_tokens is not None and batch_tokens > SMALL_BATCH
    batch = f"task.data.batch_tokens={SMALL_BATCH} (it is {batch_tokens}), " if is_large else ""
    epochs = "more epochs, or " * longer
    return f"{LITTLE}: test/bleu is {bleu:.1f} of 100{after}. Try {batch}{epochs}another optim.lr."


def is_perfect(select: str, mode: str, value: float) -> bool:
    """Whether a metric is, within a hundredth, as good as it can be."""
    bound = BOUNDS.get(select.rpartition("/")[2], 1.0 if mode == "max" else 0.0)
    return (bound - value if mode == "max" else value - bound) <= 0.01 * max(bound, 1.0)


def on_selection(select: str, mode: str, history: Sequence[Mapping[str, float]], lr: float) -> str | None:
    """Whether the selecting metric was never better than at its first validation, and what the `trend` of the losses
    says of it. None of a metric that was perfect then, or of one that only moves in steps, as an accuracy may: where
    val/loss is lower at the end than at first."""
    values = [row[select] for row in history if select in row]
    if len(values) < VALIDATIONS or is_perfect(select, mode, values[0]):
        return None
    best = max(values[1:]) if mode == "max" else min(values[1:])
    if best > values[0] if mode == "max" else best < values[0]:
        return None
    checks, losses = ([row[name] for row in history if name in row] for name in ("val/loss", "train/loss"))
    if select != "val/loss" and checks and checks[-1] < checks[0]:
        return None
    later = f"{select} was never better than at its first validation ({values[0]:.4f}, later {best:.4f} at best)"
    if trend(history) == "by heart":
        return (
            f"{later}, while train/loss fell from {losses[0]:.3f} to {losses[-1]:.3f}: the training data are learned "
            f"by heart. Try fewer epochs, more dropout or regularisation, smaller sizes, or optim.lr={lr / 3:.2g}."
        )
    if trend(history) == "diverged":
        rose = f"train/loss rose from {losses[0]:.3f} to {max(losses):.3f}"
        return f"{later}, and {rose}: it diverged. Try optim.lr={lr / 3:.2g}, or larger batches."
    rates = f"optim.lr={lr / 3:.2g} and optim.lr={3 * lr:.2g}"
    if losses and losses[-1] < 0.9 * losses[0]:
        return f"{later}, while train/loss fell from {losses[0]:.3f} to {losses[-1]:.3f}. Try more epochs, {rates}."
    return f"{later}: nothing was learned. Try {rates}."


def trend(history: Sequence[Mapping[str, float]]) -> str:
    """What a training does whose metric does not rise: it learns "by heart" where its loss falls below HEART of the
    first one, or by a tenth while that of the validation rises; it "diverged" where it rises; else it is "open"."""
    checks, losses = ([row[name] for row in history if name in row] for name in ("val/loss", "train/loss"))
    if not losses:
        return "open"
    rises = bool(checks) and checks[-1] > checks[0]
    if losses[-1] < (0.9 if rises else HEART) * losses[0]:
        return "by heart"
    return "diverged" if max(losses) > 1.05 * losses[0] else "open"
