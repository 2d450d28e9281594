"""Published pickles are plain data; whatever else a pickle names is refused, and nothing of it runs."""

import collections
import contextlib
import os
import pickle

import networkx
import numpy as np
import pytest
from scipy import sparse

from tasks.errors import UserError
from tasks.graph.pickles import read_pickle


def saved(tmp_path, value, protocol=2):
    path = tmp_path / "file.p"
    path.write_bytes(value if isinstance(value, bytes) else pickle.dumps(value, protocol=protocol))
    return path


@pytest.mark.parametrize("protocol", [2, 4])
def test_arrays_matrices_and_dicts_are_read(tmp_path, protocol):
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert np.array_equal(read_pickle(saved(tmp_path, array, protocol), "x"), array)
    columns = np.asfortranarray(np.random.default_rng(0).random((3, 2)).astype(">f4"))
    assert np.array_equal(read_pickle(saved(tmp_path, columns, protocol), "x"), columns)
    matrix = sparse.csr_matrix(array)
    assert np.array_equal(read_pickle(saved(tmp_path, matrix, protocol), "x").toarray(), array)
    links = collections.defaultdict(list, {0: [1, 2], 1: [0]})
    assert read_pickle(saved(tmp_path, links, protocol), "x") == {0: [1, 2], 1: [0]}


def test_a_networkx_graph_is_its_neighbours_and_attributes(tmp_path):
    graph = networkx.Graph([(5, 7)])
    graph.add_node(9, feat=[0.5])
    list(graph.nodes)  # makes the view that published files hold
    neighbours, attributes = read_pickle(saved(tmp_path, graph, 3), "x")
    assert neighbours == {5: {7: {}}, 7: {5: {}}, 9: {}}
    assert attributes[9] == {"feat": [0.5]}


class Hostile:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_hostile_pickle_is_refused_and_nothing_runs(tmp_path, protocol):
    target = tmp_path / "ran"
    for call in (
        (os.mkdir, str(target)),
        (eval, f"__import__('os').mkdir({str(target)!r})"),
        (getattr, "mkdir", "upper"),
    ):
        path = saved(tmp_path, {"features": Hostile(*call)}, protocol)
        with pytest.raises(UserError, match="is refused: it names"):
            read_pickle(path, "the release")
        assert not target.exists()


MKDIR = b"(S'%s'\n"
CHAINS = {  # as a program would write them that knows what is allowed
    "nested in arrays, lists and graphs": lambda path: pickle.dumps(
        [{"graph": networkx.Graph([(0, 1)], feat=[{"deep": (Hostile(os.mkdir, path),)}])}], protocol=2
    ),
    "the state of an allowed object": lambda path: b"cnumpy\ndtype\n(S'f4'\ntR(cos\nmkdir\n" + MKDIR % path.encode() + b"tRtb.",
    "getattr of an allowed name": lambda path: (
        b"cbuiltins\ngetattr\n(cnumpy\nndarray\nS'__reduce__'\ntR" + MKDIR % path.encode() + b"tR."
    ),
    "a dotted name": lambda path: b"\x80\x04\x8c\x05numpy\x8c\x0fndarray.__new__\x93" + MKDIR % path.encode() + b"tR.",
    "a module inside of an allowed one": lambda path: b"cnumpy.os\nmkdir\n" + MKDIR % path.encode() + b"tR.",
    "an instance": lambda path: MKDIR % path.encode() + b"ios\nmkdir\n.",
    "an object": lambda path: b"(cos\nmkdir\nS'%s'\no." % path.encode(),
    "a new object": lambda path: b"\x80\x02cos\nmkdir\nX\x01\x00\x00\x00a\x85\x81.",
    "an extension": lambda path: b"\x80\x02\x82\x01.",
    "a persistent name": lambda path: b"Pos.mkdir\n.",
}  # fmt: skip


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_no_chain_of_calls_reaches_a_function(tmp_path, chain):
    target = tmp_path / "ran"
    path = saved(tmp_path, chain(str(target)))
    with pytest.raises(UserError, match="is refused: .* It is damaged, or not the published file") as caught:
        read_pickle(path, "the release")
    assert not target.exists()
    assert "\n" not in str(caught.value)


def test_the_chains_do_run_where_nothing_refuses_them(tmp_path):
    """Or the test above would pass for pickles that do nothing at all."""
    ran = []
    for name in ("nested in arrays, lists and graphs", "the state of an allowed object", "an instance", "an object"):
        target = tmp_path / name.replace(" ", "_")
        with contextlib.suppress(Exception):  # a state that makes no sense
            pickle.loads(CHAINS[name](str(target)))
        ran.append(target.exists())
    assert all(ran)


@pytest.mark.parametrize(
    "value",
    [np.array([print, 1], dtype=object), np.array(["a"]), sparse.coo_matrix(np.eye(2)), {1, 2} and frozenset({1})],
)
def test_other_objects_are_refused(tmp_path, value):
    with pytest.raises(UserError, match="is refused"):
        read_pickle(saved(tmp_path, value), "the release")


def test_a_truncated_pickle_and_a_missing_one_are_told(tmp_path):
    whole = pickle.dumps(np.arange(100), protocol=2)
    for cut in (0, 1, len(whole) // 2, len(whole) - 1):
        with pytest.raises(UserError, match="fetch it again: the release"):
            read_pickle(saved(tmp_path, whole[:cut]), "the release")
    with pytest.raises(UserError, match="There is no file"):
        read_pickle(tmp_path / "absent", "the release")


def test_a_matrix_whose_indices_lie_outside_is_refused(tmp_path):
    matrix = sparse.csr_matrix(np.eye(3))
    matrix.indices[0] = 7
    with pytest.raises(UserError, match="is refused"):
        read_pickle(saved(tmp_path, matrix), "the release")
