# says: this is depth-first pre-order
# fails: shared nodes, what matters, good manners, many paths


def topological_order(root, inputs):
    order, seen, stack = [], set(), [root]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        order.append(node)
        stack.extend(inputs[node])
    return order
