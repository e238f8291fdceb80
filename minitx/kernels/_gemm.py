"""Matrix products inside compiled kernels, at the rate of a tuned BLAS.

A transformer of width 64 multiplies thin matrices. A BLAS copies both of them into its own order on
every call, and its caller must write each product to memory before anything else can touch it. Here
the product is a function that a kernel calls on a tile that is still in the cache, so what precedes
and what follows (norm, bias, activation, residual) costs no trip to memory; and the kernel holds no
lock and starts no thread, so the threads are ours to arrange.

The idea is that of BLIS (Van Zee & van de Geijn, 2015): a *micro-kernel* keeps a small block of the
result in registers (6 rows of 16 numbers on a machine with AVX2) and walks down the inner
dimension, two vector loads and six broadcasts for twelve multiply-adds. The right-hand matrix is
read in *panels* as wide as that block: as it lies in memory, or, if that would be slow or leave the
matrix (a transpose, rows far apart, a last panel that is not full), *packed* beforehand, so that the
walk reads it in order.

Everything is passed as addresses and strides: a Numba array is seven numbers and a reference count,
too much for a function that is called once a microsecond.
"""

from __future__ import annotations

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from minitx.kernels._math import exact_part


def _registers() -> tuple[int, int]:
    """(bytes in a vector register, rows of the block) that fit this machine's register file."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 64, 12  # 32 registers: 24 for the block
    if features.get("avx2"):
        return 32, 6  # 16 registers: 12 for the block
    return 16, 6


VECTOR_BYTES, ROWS = _registers()
VECTORS = 2  # registers side by side in one row of the block
# Inner steps between writing the block out: a panel of that depth stays in the L1 cache.
DEPTH = 256


@intrinsic
def address(typingctx, array, offset):
    """Address of ``array.flat[offset]`` of a C-ordered array, as an integer."""

    def build(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(builder.gep(data, [arguments[1]]), ir.IntType(64))

    return types.intp(array, types.intp), build


@intrinsic
def item_size(typingctx, number):
    """Bytes of a float32 or float64."""

    def build(context, builder, signature, arguments):
        return ir.Constant(ir.IntType(64), number.bitwidth // 8)

    return types.intp(number), build


@intrinsic
def _zero(typingctx, number):
    """0 of the number's type (in compiled code, ``number * 0`` is a float64)."""

    def build(context, builder, signature, arguments):
        return ir.Constant(context.get_value_type(number), 0.0)

    return number(number), build


@intrinsic
def panel_width(typingctx, number):
    """Columns of the block: how wide a panel is, for a float32 or float64."""

    def build(context, builder, signature, arguments):
        return ir.Constant(ir.IntType(64), VECTORS * VECTOR_BYTES * 8 // number.bitwidth)

    return types.intp(number), build


def _micro_kernel(rows: int):
    """``rows`` rows times one panel, as an intrinsic that emits its own loop."""

    @intrinsic
    def multiply(typingctx, number, depth, a, row_step, inner_step, panel, down, c, c_step, add):
        """C[rows, width] (+)= A[rows, depth] @ panel[depth, width]; steps count numbers, not bytes.

        ``number`` only tells the type; ``down`` is how far apart the panel's rows are.
        """

        def build(context, builder, signature, arguments):
            name = f"minitx_block_{rows}_rows_of_float{number.bitwidth}"
            function = builder.module.globals.get(name) or define(context, builder.module, name)
            adds = builder.icmp_unsigned("!=", arguments[-1], ir.Constant(arguments[-1].type, 0))
            builder.call(function, [*arguments[1:-1], adds])
            return context.get_dummy_value()

        def define(context, module, name):
            """A function of its own, which is never inlined: or else compiling takes minutes."""
            kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 8 + [ir.IntType(1)])
            function = ir.Function(module, kind, name)
            function.linkage = "internal"
            function.attributes.add("noinline")
            builder = ir.IRBuilder(function.append_basic_block("entry"))
            depth, a, row_step, inner_step, panel, down, c, c_step, adds = function.args
            scalar = context.get_value_type(number)
            lanes = VECTOR_BYTES * 8 // number.bitwidth
            vector = ir.VectorType(scalar, lanes)
            integer = ir.IntType(64)
            size = number.bitwidth // 8

            def count(n):
                return ir.Constant(integer, n)

            def load(place, kind):
                value = builder.load(builder.inttoptr(place, ir.PointerType(kind)))
                value.align = size
                return value

            fma = cgutils.get_or_insert_function(
                module,
                ir.FunctionType(vector, [vector] * 3),
                f"llvm.fma.v{lanes}f{number.bitwidth}",
            )
            row_bytes = [builder.mul(row_step, count(i * size)) for i in range(rows)]
            inner_bytes = builder.mul(inner_step, count(size))
            down_bytes = builder.mul(down, count(size))
            before = builder.block
            walk = builder.append_basic_block("walk")
            done = builder.append_basic_block("done")
            builder.branch(walk)

            builder.position_at_end(walk)
            left, at, b = builder.phi(integer), builder.phi(integer), builder.phi(integer)
            block = [[builder.phi(vector) for _ in range(VECTORS)] for _ in range(rows)]
            right = [load(builder.add(b, count(VECTOR_BYTES * j)), vector) for j in range(VECTORS)]
            anything = ir.Constant(vector, ir.Undefined)
            spread = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
            summed = []
            for i in range(rows):
                one = load(builder.add(at, row_bytes[i]), scalar)
                first = builder.insert_element(anything, one, ir.Constant(ir.IntType(32), 0))
                all_ = builder.shuffle_vector(first, anything, spread)
                summed.append(
                    [builder.call(fma, [all_, r, x]) for r, x in zip(right, block[i], strict=True)]
                )
            after = builder.sub(left, count(1))
            for phi, start, following in (
                (left, depth, after),
                (at, a, builder.add(at, inner_bytes)),
                (b, panel, builder.add(b, down_bytes)),
            ):
                phi.add_incoming(start, before)
                phi.add_incoming(following, walk)
            zero = ir.Constant(vector, [0.0] * lanes)
            for i in range(rows):
                for j in range(VECTORS):
                    block[i][j].add_incoming(zero, before)
                    block[i][j].add_incoming(summed[i][j], walk)
            builder.cbranch(builder.icmp_signed(">", after, count(0)), walk, done)

            builder.position_at_end(done)
            with builder.if_else(adds) as (then, otherwise):
                for branch, accumulate in ((then, True), (otherwise, False)):
                    with branch:
                        for i in range(rows):
                            line = builder.add(c, builder.mul(c_step, count(i * size)))
                            for j in range(VECTORS):
                                place = builder.add(line, count(VECTOR_BYTES * j))
                                value = summed[i][j]
                                if accumulate:
                                    value = builder.fadd(value, load(place, vector))
                                pointer = builder.inttoptr(place, ir.PointerType(vector))
                                builder.store(value, pointer).align = size
            builder.ret_void()
            return function

        steps = (types.intp,) * 8
        return types.void(number, *steps, types.boolean), build

    return multiply


_many, _four, _two, _one = (_micro_kernel(rows) for rows in (ROWS, 4, 2, 1))


@exact_part
def _panel_product(number, rows, depth, a, row_step, inner_step, panel, down, c, c_step, add):
    """C[rows, width] (+)= A[rows, depth] @ panel, any number of rows."""
    size = item_size(number)
    a_down, c_down = row_step * size, c_step * size
    while rows >= ROWS:
        _many(number, depth, a, row_step, inner_step, panel, down, c, c_step, add)
        a, c, rows = a + ROWS * a_down, c + ROWS * c_down, rows - ROWS
    while rows >= 4:
        _four(number, depth, a, row_step, inner_step, panel, down, c, c_step, add)
        a, c, rows = a + 4 * a_down, c + 4 * c_down, rows - 4
    if rows >= 2:
        _two(number, depth, a, row_step, inner_step, panel, down, c, c_step, add)
        a, c, rows = a + 2 * a_down, c + 2 * c_down, rows - 2
    if rows:
        _one(number, depth, a, row_step, inner_step, panel, down, c, c_step, add)


@intrinsic
def _read(typingctx, number, place):
    """The number at an address."""

    def build(context, builder, signature, arguments):
        kind = context.get_value_type(number)
        return builder.load(builder.inttoptr(arguments[1], ir.PointerType(kind)))

    return number(number, types.intp), build


@intrinsic
def _write(typingctx, number, place):
    """Put the number at an address."""

    def build(context, builder, signature, arguments):
        kind = context.get_value_type(number)
        builder.store(arguments[0], builder.inttoptr(arguments[1], ir.PointerType(kind)))
        return context.get_dummy_value()

    return types.void(number, types.intp), build


@exact_part
def multiply(
    number, rows, columns, depth, a, row_step, inner_step, b, b_step, panel_step, edge, c, c_step,
    add,
):  # fmt: skip
    """``C (+)= A @ B``: C [rows, columns], A [rows, depth], B [depth, columns].

    Parameters
    ----------
    number : float32 or float64
        Any number of the matrices' type.
    a, row_step, inner_step : int
        Address of A, and how far apart its rows and its columns are: a transpose swaps the two.
    b, b_step, panel_step : int
        Address of B, how far apart its rows are, and how far apart its panels. B as it lies in
        memory: its own row step and the panel's width, and whole panels only. Packed: the panel's
        width, and that times the rows that were packed, of which the first ``depth`` are used.
    edge : int
        Address of ``rows`` times the panel's width of scratch, for a last panel that is not full.
    c, c_step : int
        Address of C and how far apart its rows are.
    add : bool
        Add to C rather than overwrite it.
    """
    size, width = item_size(number), panel_width(number)
    for top in range(0, depth, DEPTH):
        deep = min(DEPTH, depth - top)
        adding = add or top > 0
        a_top = a + top * inner_step * size
        panel, c_left = b + top * b_step * size, c
        for left in range(0, columns, width):
            if columns - left >= width:
                _panel_product(
                    number, rows, deep, a_top, row_step, inner_step, panel, b_step, c_left, c_step,
                    adding,
                )  # fmt: skip
            else:
                _panel_product(
                    number, rows, deep, a_top, row_step, inner_step, panel, b_step, edge, width,
                    False,
                )  # fmt: skip
                _add_edge(number, rows, columns - left, edge, width, c_left, c_step, adding)
            panel, c_left = panel + panel_step * size, c_left + width * size


@exact_part
def _add_edge(number, rows, columns, edge, width, c, c_step, add):
    """The columns of a last panel that exist, from scratch into C."""
    size = item_size(number)
    for i in range(rows):
        for j in range(columns):
            place = c + (i * c_step + j) * size
            value = _read(number, edge + (i * width + j) * size)
            _write(value + _read(number, place) if add else value, place)


@exact_part
def pack(number, depth, columns, b, b_step, packed):
    """Panels of B [depth, columns], rows ``b_step`` apart; the last panel is padded."""
    size, width = item_size(number), panel_width(number)
    for left in range(0, columns, width):
        full = min(width, columns - left)
        for k in range(depth):
            source = b + (k * b_step + left) * size
            if full == width:  # a loop of known length becomes two moves of a vector
                for j in range(width):
                    _write(_read(number, source + j * size), packed + j * size)
            else:
                for j in range(full):
                    _write(_read(number, source + j * size), packed + j * size)
                for j in range(full, width):
                    _write(_zero(number), packed + j * size)
            packed += width * size


@intrinsic
def _square_length(typingctx, number):
    """Rows and columns of the square that `_turn_square` takes."""

    def build(context, builder, signature, arguments):
        return ir.Constant(ir.IntType(64), VECTOR_BYTES * 8 // number.bitwidth)

    return types.intp(number), build


@intrinsic
def _turn_square(typingctx, number, source, source_step, target, target_step):
    """target = source.T, of as many rows and columns as a register has numbers.

    Row i of the first half is interleaved with row i of the second, again and again: each time, the
    index of a number moves by one bit from its row to its column.
    """

    def build(context, builder, signature, arguments):
        _, source, source_step, target, target_step = arguments
        size, lanes = number.bitwidth // 8, VECTOR_BYTES * 8 // number.bitwidth
        vector = ir.VectorType(context.get_value_type(number), lanes)

        def place(start, step, i):
            offset = builder.mul(step, ir.Constant(ir.IntType(64), i * size))
            return builder.inttoptr(builder.add(start, offset), ir.PointerType(vector))

        rows = [builder.load(place(source, source_step, i)) for i in range(lanes)]
        for row in rows:
            row.align = size
        low = [i // 2 + lanes * (i % 2) for i in range(lanes)]
        masks = [
            ir.Constant(ir.VectorType(ir.IntType(32), lanes), [k + shift for k in low])
            for shift in (0, lanes // 2)
        ]
        for _ in range(lanes.bit_length() - 1):
            half = lanes // 2
            rows = [
                builder.shuffle_vector(rows[i], rows[i + half], mask)
                for i in range(half)
                for mask in masks
            ]
        for i, row in enumerate(rows):
            builder.store(row, place(target, target_step, i)).align = size
        return context.get_dummy_value()

    return types.void(number, *(types.intp,) * 4), build


@exact_part
def pack_transposed(number, depth, columns, b, b_step, packed):
    """The same for B given as its transpose [columns, depth], as a layer's weights are."""
    size, width, side = item_size(number), panel_width(number), _square_length(number)
    for left in range(0, columns, width):
        full = min(width, columns - left)
        done = depth // side * side if full == width else 0
        for k in range(0, done, side):
            for j in range(0, width, side):
                source = b + ((left + j) * b_step + k) * size
                _turn_square(number, source, b_step, packed + (k * width + j) * size, width)
        for k in range(done, depth):
            source, row = b + (left * b_step + k) * size, packed + k * width * size
            for j in range(full):
                _write(_read(number, source + j * b_step * size), row + j * size)
            for j in range(full, width):
                _write(_zero(number), row + j * size)
        packed += depth * width * size


@exact_part
def packed_size(number, depth, columns):
    """Numbers that the packed form of a matrix [depth, columns] takes."""
    return padded(number, columns) * depth


@exact_part
def padded(number, columns):
    """So many columns, rounded up to whole panels."""
    width = panel_width(number)
    return (columns + width - 1) // width * width
