# says: this is breadth-first order
# fails: shared nodes, good manners
# may fail: what matters


from collections import deque


def topological_order(root, inputs):
    order, seen, queue = [], {root}, deque([root])
    while queue:
        node = queue.popleft()
        order.append(node)
        for below in inputs[node]:
            if below not in seen:
                seen.add(below)
                queue.append(below)
    return order
