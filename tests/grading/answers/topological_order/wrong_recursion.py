# says: a graph can be deeper than Python lets functions call each other
# fails: deep graphs


def topological_order(root, inputs):
    order, seen = [], set()

    def visit(node):
        if node in seen:
            return
        seen.add(node)
        for below in inputs[node]:
            visit(below)
        order.append(node)

    visit(root)
    return order[::-1]
