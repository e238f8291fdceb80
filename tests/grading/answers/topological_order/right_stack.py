def topological_order(root, inputs):
    order, seen, stack = [], {root}, [(root, iter(inputs[root]))]
    while stack:
        node, rest = stack[-1]
        for below in rest:
            if below not in seen:
                seen.add(below)
                stack.append((below, iter(inputs[below])))
                break
        else:
            stack.pop()
            order.append(node)
    return order[::-1]
