# says: the argument 'inputs' is changed in place
# fails: good manners


def topological_order(root, inputs):
    order, seen, stack = [], {root}, [root]
    while stack:
        node = stack[-1]
        if inputs[node]:
            below = inputs[node].pop()
            if below not in seen:
                seen.add(below)
                stack.append(below)
        else:
            order.append(stack.pop())
    return order[::-1]
