# says: the order is upside down
# fails: a chain, shared nodes, what matters, good manners, many paths, deep graphs


def topological_order(root, inputs):
    order, seen, stack = [], set(), [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((below, False) for below in inputs[node])
    return order
