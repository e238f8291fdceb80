from collections import deque


def topological_order(root, inputs):
    reached, stack = {root}, [root]
    uses = {root: 0}
    while stack:
        for below in inputs[stack.pop()]:
            uses[below] = uses.get(below, 0) + 1
            if below not in reached:
                reached.add(below)
                stack.append(below)
    ready, order = deque([root]), []
    while ready:
        node = ready.popleft()
        order.append(node)
        for below in inputs[node]:
            uses[below] -= 1
            if uses[below] == 0:
                ready.append(below)
    return order
