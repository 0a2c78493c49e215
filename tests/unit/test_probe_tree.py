"""Tensors in nested structures: found, named, mapped, moved."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import torch

from kernelwright.probe import tree

Pair = namedtuple("Pair", "first second")


@dataclass(frozen=True)
class Output:
    loss: object
    rest: object


class Simple:
    def __init__(self, value):
        self.value = value


def test_paths_of_every_kind_of_container():
    x = torch.ones(1)
    nest = ({"a": [x, None, 3]}, Pair(x, "no"), Output(x, {"deep": (x,)}), Simple(x))
    assert [path for path, _ in tree.leaves(nest)] == ["0.a.0", "1.first", "2.loss", "2.rest.deep.0", "3.value"]
    assert tree.leaves(x) == [("", x)]
    assert tree.leaves([torch.float32, torch.Size([1]), torch.nn.Linear(1, 1), len]) == []


def test_a_container_that_holds_itself_ends():
    nest = [torch.ones(1)]
    nest.append(nest)
    assert [path for path, _ in tree.leaves(nest)] == ["0"]


def test_map_keeps_types_identity_and_what_holds_no_tensor():
    x, untouched = torch.ones(2), {"k": [1, 2]}
    nest = OrderedDict(p=Pair(x, x), o=Output(x, untouched), s=Simple([x]), n=untouched)
    mapped = tree.map_tensors(lambda tensor: tensor + 1, nest)
    assert type(mapped) is OrderedDict and type(mapped["p"]) is Pair and type(mapped["o"]) is Output
    assert mapped["p"].first is mapped["p"].second is mapped["s"].value[0]
    assert mapped["n"] is untouched and mapped["o"].rest is untouched
    assert mapped["p"].first.tolist() == [2, 2] and x.tolist() == [1, 1] and nest["s"].value[0] is x


def test_move_shares_what_is_there_and_keeps_leaves_and_sharing():
    x = torch.ones(2, requires_grad=True)
    assert tree.to_device((x,), "cpu")[0] is x
    moved = tree.to_device({"a": x, "b": [x]}, "meta")
    assert moved["a"].device.type == "meta" and moved["a"] is moved["b"][0]
    assert moved["a"].requires_grad and moved["a"].is_leaf


def test_packed_sequences_keep_their_lengths_on_the_cpu():
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    moved = tree.to_device((packed,), "meta")[0]
    assert moved.data.device.type == "meta" and moved.batch_sizes.device.type == "cpu"
