"""Check of `topological_order`: in which order does backward visit a graph?"""

from __future__ import annotations

from collections import deque

from minitx.grading import references
from minitx.grading.exercise import Exercise, Function, Mistake, Part

LADDER = 40  # diamonds on top of each other: 2**40 paths
DEEP = 3000  # nodes in a row, more than Python's default recursion limit


def _judge(arguments, answer):
    root, inputs = arguments
    if not isinstance(answer, (list, tuple)):
        return f"the answer is a {type(answer).__name__}; expected a list of node names"
    strange = [node for node in answer if not isinstance(node, str) or node not in inputs]
    if strange:
        return f"the answer has {strange[0]!r}, which is no node of the graph"
    wanted = set(references.topological_order(root, inputs))
    for node in answer:
        if node not in wanted:
            return f"{node!r} is visited, but {root!r} does not depend on it"
    place = {node: i for i, node in enumerate(answer)}
    if len(place) < len(answer):
        twice = next(node for node in answer if answer.count(node) > 1)
        return f"{twice!r} is visited {answer.count(twice)} times; each node is visited once"
    for node in references.topological_order(root, inputs):
        if node not in place:
            return f"{node!r} is missing, and {root!r} depends on it"
    for node in answer:
        for below in inputs[node]:
            if place[below] < place[node]:
                return (
                    f"{below!r} comes before {node!r}, which uses it: its gradient would be passed "
                    "on before it is complete"
                )
    return None


def _graphs(shared: bool, strangers: bool = False):
    def strategy():
        from minitx.grading import draw

        @draw.composite
        def arguments(pick):
            names = list("abcdefg"[: pick(draw.sizes(1, 6 if shared else 4))])
            inputs: dict[str, list[str]] = {}
            for i, name in enumerate(names):  # a node is made from earlier ones
                if shared:
                    edges = draw.lists(draw.integers(0, max(i - 1, 0)), max_size=3 if i else 0)
                    inputs[name] = [names[j] for j in pick(edges)]
                else:
                    inputs[name] = [names[i - 1]] if i else []
            root = names[-1]
            reached = references.topological_order(root, inputs)
            inputs = {name: inputs[name] for name in names if name in reached}
            names = list(inputs)
            if strangers:  # a second result, made from the same nodes, that root does not need
                inputs["x"], inputs["y"] = [root], []
                inputs["z"] = [pick(draw.sampled_from(names)), "y"]
            order = pick(draw.sampled_from(["as made", "backwards"]))
            keys = list(inputs) if order == "as made" else list(inputs)[::-1]
            return root, {key: inputs[key] for key in keys}

        return arguments()

    return strategy


def _ladder():
    from minitx.grading import draw

    inputs: dict[str, list[str]] = {"n0": []}
    for i in range(LADDER):
        inputs[f"l{i}"] = inputs[f"r{i}"] = [f"n{i}"]
        inputs[f"n{i + 1}"] = [f"l{i}", f"r{i}"]
    return draw.sampled_from([(f"n{LADDER}", inputs)])


def _deep():
    from minitx.grading import draw

    inputs = {"n0": [], **{f"n{i}": [f"n{i - 1}"] for i in range(1, DEEP)}}
    return draw.sampled_from([(f"n{DEEP - 1}", inputs)])


# The wrong orders, each in two versions: inputs taken from the left (step 1) or the right (-1).


def _preorder(root, inputs, step=1):
    order, stack = [], [root]
    while stack:
        node = stack.pop()
        if node not in order:
            order.append(node)
            stack.extend(inputs[node][::-step])
    return order


def _breadth_first(root, inputs, step=1):
    order, queue = [root], deque([root])
    while queue:
        for node in inputs[queue.popleft()][::step]:
            if node not in order:
                order.append(node)
                queue.append(node)
    return order


def _postorder(root, inputs, step=1, mark=True):
    order: list[str] = []

    def visit(node):
        if mark and node in order:
            return
        for below in inputs[node][::step]:
            visit(below)
        order.append(node)

    visit(root)
    return order


def _unmarked(root, inputs, step=1):
    return _postorder(root, inputs, step, mark=False)[::-1]


def _both_ways(hint, wrong):
    return (
        Mistake(hint, wrong),
        Mistake(hint, lambda root, inputs: wrong(root, inputs, step=-1)),
    )


EXERCISE = Exercise(
    name="topological_order",
    title="The order in which backward visits a graph",
    level=3,
    functions=(
        Function(
            references.topological_order,
            judge=_judge,
            mistakes=(
                *_both_ways(
                    "the order is upside down: leaves first. Backward starts at the "
                    "root: reverse it.",
                    _postorder,
                ),
                *_both_ways(
                    "this is depth-first pre-order: a node is listed when it is first met, though "
                    "another node that uses it may come later. List it when all its inputs are "
                    "done (post-order), and reverse.",
                    _preorder,
                ),
                *_both_ways(
                    "this is breadth-first order: the shortest way to a node decides, though a "
                    "longer one may still bring gradient. Depth-first post-order, reversed, waits "
                    "for all.",
                    _breadth_first,
                ),
                *_both_ways(
                    "nodes that are used twice are listed twice, once a path: remember which nodes "
                    "you have visited.",
                    _unmarked,
                ),
                Mistake(
                    "the root itself is missing; backward starts there.",
                    lambda root, inputs: references.topological_order(root, inputs)[1:],
                ),
            ),
        ),
    ),
    parts=(
        Part("a chain", 1, "a chain is walked from the root down", _graphs(shared=False)),
        Part(
            "shared nodes",
            4,
            "a node comes once, after every node that uses it",
            _graphs(shared=True),
            examples=80,
            hint="a node may only be listed when all the nodes that use it are.",
        ),
        Part(
            "what matters",
            1,
            "nodes that the root does not depend on are left out",
            _graphs(shared=True, strangers=True),
            hint="start at root and follow inputs; do not walk over the whole dictionary.",
        ),
        Part(
            "good manners",
            1,
            "the graph is left as it was",
            _graphs(shared=True),
            leaves_inputs=True,
            hint="first the order must be right: see the other parts.",
        ),
        Part(
            "many paths",
            1,
            f"{LADDER} diamonds on top of each other, 2^{LADDER} paths, take no time",
            _ladder,
            examples=1,
            known_mistakes=False,
            timeout_hint="you walk every path through the graph, and their number doubles with "
            "each diamond: remember which nodes you have visited.",
        ),
        Part(
            "deep graphs",
            2,
            f"{DEEP} nodes in a row do not hit the recursion limit",
            _deep,
            examples=1,
            known_mistakes=False,
            hint="a graph can be deeper than Python lets functions call each other (about 1000): "
            "keep a stack (a list) of your own instead of recursion.",
        ),
    ),
)
