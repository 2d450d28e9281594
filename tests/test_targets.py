"""The gate of classes: which a configuration may name, and where; a task takes its own data and model."""

import copy
import functools

import pytest
from hydra.utils import get_object

from configs.build import build
from configs.errors import ConfigError
from configs.targets import check_targets, targets
from tasks.errors import UserError
from tests.cli import QUIET, call, places
from tests.configurations import TOYS, checked


def test_a_class_of_the_command_line_passes_the_same_gate(tmp_path):
    result = call("task=prefix_toy", "+geometry.options.Linear.x={_target_: os.getcwd}", *QUIET, *places(tmp_path))
    assert result.code == 1
    assert "geometry.options.Linear.x._target_='os.getcwd' is refused" in result.err


def test_the_table_of_classes_is_what_the_files_name():
    assert "tasks.prefix.task.PrefixTask" in targets()
    assert "hyperbolic.geometry.make_geometry" in targets()
    assert all(name.split(".")[0] in ("tasks", "hyperbolic", "pytorch_lightning") for name in targets()), sorted(targets())


@pytest.mark.parametrize("key", ["geometry", "encoder", "task.data", "task.model", "task.module"])
def test_a_class_stands_only_where_the_files_have_it(key):
    for target, nodes in targets().items():
        node = functools.reduce(lambda value, part: {part: value}, reversed(key.split(".")), {"_target_": target})
        if key in nodes:
            check_targets(node)
            continue
        with pytest.raises(ConfigError, match=rf"{key}\._target_={target} is refused: the files in configs/ have it as"):
            check_targets(node)


@pytest.mark.parametrize("place", ["geometry.options", "geometry.parts", "task.data", "trainer", "encoder"])
def test_in_a_checkpoint_a_class_does_not_stand_in_another_node_by_the_name_of_its_own(place):
    """Where a logger stood in the options of layers, its folder was opened, also in another protocol than a file's."""
    for target, nodes in targets().items():
        for name in {node.rpartition(".")[2] for node in nodes}:
            if f"{place}.{name}" not in nodes and not (place == "encoder" and "encoder" in nodes):
                check_targets({"_target_": target}, f"{place}.{name}")  # as somebody's own files may put it
                with pytest.raises(ConfigError, match="is refused: the files in configs/ have it as"):
                    check_targets({"_target_": target}, f"{place}.{name}", stored=True)


composed = functools.cache(checked)


@pytest.mark.parametrize("toy", TOYS)
def test_a_task_takes_its_own_data_and_model(toy):
    values = copy.deepcopy(composed(f"task={toy}"))
    _, data = build(values)
    place = TOYS.index(toy)
    for other in (TOYS * 2)[place + 1 : place + 4]:  # the next three of the ring
        module = copy.deepcopy(values) | {"task": values["task"] | {"module": composed(f"task={other}")["task"]["module"]}}
        kind = get_object(module["task"]["module"]["_target_"])
        if isinstance(data, kind.learns_from):  # as of two toys of one task
            continue
        with pytest.raises(UserError, match=r"is for \w+.*, and task\.(model|data) is of the class \w+\. Take those of one"):
            build(module)


def test_an_encoder_may_be_a_part_of_another_one_and_of_a_model_in_a_checkpoint_too():
    """As a default of a user's file puts it there, `/encoder@model.inner.encoder: gru`."""
    (target, *_) = sorted(name for name, nodes in targets().items() if "encoder" in nodes)
    for place in ("encoder.words", "task.model.encoder", "task.model.inner.encoder"):
        check_targets({"_target_": target}, place, stored=True)
    with pytest.raises(ConfigError, match="is refused: the files in configs/ have it as encoder"):
        check_targets({"_target_": target}, "geometry.options.encoder", stored=True)
