"""Exercise 3 of 6: the order in which backward visits a graph (10 points).

Every value in a computation knows the values it was made from. Backward starts at the loss (the
*root*) and hands each node's gradient on to those. A node that is used twice receives gradient
twice, and may hand it on only when both have arrived:

    a -> b -> d        d = b * c is the root, made from b and c;
    a -> c -> d        b and c are both made from a.

So every node must come *after* all the nodes that use it. d b c a and d c b a are right, d b a c is
not: c has not yet given its share to a.

Check your work with:  minitx grade topological_order topological_order.py
"""


def topological_order(root: str, inputs: dict[str, list[str]]) -> list[str]:
    """The nodes that ``root`` depends on, in an order in which backward can visit them.

    Parameters
    ----------
    root : str
        The node that backward starts from.
    inputs : dict
        For every node the nodes it was made from: ``{"a": [], "b": ["a"]}`` says that b was made
        from a. A node can appear twice in a list (``a * a``). There are no cycles. The dictionary
        may hold nodes that root does not depend on, and is in no particular order.

    Returns
    -------
    list of str
        ``root`` first; each node that root depends on exactly once, after every node that uses it.
        Any such order is right. ``inputs`` is not changed.

    Notes
    -----
    Graphs can be thousands of nodes deep, and can have more paths than you could ever walk.

    Examples
    --------
    >>> topological_order("c", {"a": [], "b": ["a"], "c": ["b"], "unused": ["a"]})
    ['c', 'b', 'a']
    >>> topological_order("d", {"a": [], "b": ["a"], "d": ["b", "a"]})
    ['d', 'b', 'a']
    """
    raise NotImplementedError
