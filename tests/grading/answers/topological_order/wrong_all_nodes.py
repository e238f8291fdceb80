# says: is visited, but
# says: do not walk over the whole dictionary
# fails: what matters


def topological_order(root, inputs):
    order, seen = [], set()
    for start in [*(n for n in inputs if n != root), root]:
        stack = [(start, False)]
        while stack:
            node, done = stack.pop()
            if done:
                order.append(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                stack.extend((below, False) for below in inputs[node])
    order = order[::-1]
    return order
