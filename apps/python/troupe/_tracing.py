"""A torch module by its graph of torch.fx, cut into parts."""

from __future__ import annotations

import copy
import operator
from typing import Any, Sequence

from torch import fx, nn

from ._command import UsageError


class Choice(nn.Module):
    """A number that depends on self.training: of F.dropout(x, 0.1, self.training), say."""

    def __init__(self, evaluating: Any, training: Any) -> None:
        super().__init__()
        self.of = evaluating, training

    def forward(self) -> Any:
        return self.of[self.training]


def _with_choices(evaluating: fx.Graph, graph: fx.Graph) -> dict[str, Choice]:
    """Puts a Choice into `graph`, of training, wherever the other has another number."""
    choices: dict[str, Choice] = {}

    def chosen(user: fx.Node, one: Any, other: Any) -> Any:
        if fx.node.map_arg(one, same.__getitem__) == other:
            return other
        if not all(isinstance(value, (bool, int, float)) for value in (one, other)):
            raise UsageError(f"from_torch: {user.name} takes {one!r} when the module is evaluated and {other!r} when it is trained, "
                             "and only numbers may differ; give Network(...) its parts")
        name = f"choice_{len(choices)}"
        choices[name] = Choice(one, other)
        with graph.inserting_before(user):
            return graph.call_module(name)

    before = list(evaluating.nodes)
    after = list(graph.nodes)
    if [(n.op, n.target, len(n.args), list(n.kwargs)) for n in before] != [(n.op, n.target, len(n.args), list(n.kwargs)) for n in after]:
        raise UsageError("from_torch: the module has other operations when it is evaluated, outside of its children; give Network(...) "
                         "its parts")
    same = dict(zip(before, after))
    for one, node in zip(before, after):
        node.args = tuple(chosen(node, *pair) for pair in zip(one.args, node.args))
        node.kwargs = {key: chosen(node, one.kwargs[key], value) for key, value in node.kwargs.items()}
    return choices


def traced(module: nn.Module, cut: Sequence[str] | None) -> tuple[list[nn.Module], list[str]]:
    """The parts between the cuts, and their names: from_torch()."""
    try:
        graphs = [fx.Tracer().trace(copy.deepcopy(module).train(training)) for training in (False, True)]
    except Exception as error:
        raise UsageError(f"from_torch: torch.fx cannot trace {type(module).__name__}; give Network(...) its parts: {error}") from error
    graph = graphs[1]
    root = {node.target: operator.attrgetter(node.target)(module) for node in graph.nodes if node.op in ("call_module", "get_attr")}
    root.update(_with_choices(*graphs))
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    if len(inputs) != 1:
        raise UsageError(f"from_torch: the module takes {len(inputs)} inputs, and a layer takes one")
    (result,) = next(node for node in graph.nodes if node.op == "output").args
    if not isinstance(result, fx.Node):
        raise UsageError("from_torch: the module gives several tensors, and a layer gives one")
    last: dict[str, int] = {}  # of each name that may be cut at, its last node
    for i, node in enumerate(nodes):
        last[node.name] = i
        for path in node.meta.get("nn_module_stack", {}):
            last[path] = i
    order = {node: i for i, node in enumerate(nodes)}

    def crossing(end: int) -> list[fx.Node]:
        """What nodes behind `end` read of those up to it."""
        return [node for node in [*inputs, *nodes[:end + 1]] if any(order.get(user, len(nodes)) > end for user in node.users)]

    def legal(name: str) -> bool:
        if name not in last:
            raise UsageError(f"from_torch: cut: nothing of the module's graph is called {name!r} ({', '.join(last)})")
        over = crossing(last[name])
        if cut is not None and len(over) != 1:
            raise UsageError(f"from_torch: cut: behind {name!r} {len(over)} tensors go on ({', '.join(map(str, over))}), and one "
                             "is what a layer can send")
        return len(over) == 1

    wanted = [name for name, _ in module.named_children() if name in last] if cut is None else cut
    places = {last[name]: name for name in wanted if legal(name)}
    places.setdefault(len(nodes) - 1, "end")
    parts, names, begin, taken = [], [], 0, inputs[0]
    for end, name in sorted(places.items()):
        part = fx.Graph()
        copies = {taken: part.placeholder("x")}

        def copied(node: fx.Node) -> fx.Node:
            if node not in copies:  # a parameter, read where it is needed
                copies[node] = part.node_copy(node)
            return copies[node]

        for node in nodes[begin:end + 1]:
            copies[node] = part.node_copy(node, copied)
        taken = crossing(end)[0] if end < len(nodes) - 1 else result
        part.output(copies[taken])
        parts.append(fx.GraphModule(root, part))
        names.append(name)
        begin = end + 1
    return parts, names
