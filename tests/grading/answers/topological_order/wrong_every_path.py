# says: nodes that are used twice are listed twice
# says: you walk every path through the graph
# fails: shared nodes, what matters, good manners, many paths


def topological_order(root, inputs):
    order, stack = [], [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        else:
            stack.append((node, True))
            stack.extend((below, False) for below in inputs[node])
    return order[::-1]
