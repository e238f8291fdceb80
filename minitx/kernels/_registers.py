"""Loops that take many exps, in vector registers: softmax down columns, gelu and silu.

Numba's loops would do, but they are unrolled into single numbers if they are short, and reload every
constant of the exp in each round if they are not: twice the time. So the instructions are written out,
as in the micro-kernel (`_gemm.py`), with a class whose operators emit them.

For softmax, a panel has a key in each row and a query in each column, as many queries as fill the
registers. What a query needs of its keys, the largest score and a sum, is then one number in each lane
of a register: nothing is ever added up across a register, and no query has fewer keys to loop over
than its neighbour.

In the intrinsics below, the outer function sees Numba's types of its arguments; ``build``, which has
the same names, sees their values in the code that is being written, and wraps them.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from minitx.kernels._gemm import VECTOR_BYTES, VECTORS
from minitx.kernels._math import EXP_HIGH, EXP_LOW, EXP_MANTISSA_BITS, exp_steps

intp = types.intp
INTEGER = ir.IntType(64)
FIRST = ir.Constant(INTEGER, 0)
FLAT = 1e10  # x² from where gelu and silu are x or 0: beyond, it would overflow, and 0 · inf is NaN


def _operator(name: str, swapped: bool = False) -> Callable:
    def operator(self, other):
        def emit(a, b):
            a, b = (b, a) if swapped else (a, b)
            return getattr(self.builder, name)(a, b, flags=("contract",))

        return self._each(emit, other)

    return operator


class Row:
    """A row of a panel in registers, in code that is being written: each operator emits it.

    Operands are rows or numbers.
    """

    __array_ufunc__ = None  # so that NumPy's scalars leave ``scalar * row`` to us

    def __init__(self, builder: ir.IRBuilder, vectors: list):
        self.builder, self.vectors, self.type = builder, vectors, vectors[0].type

    def like(self, number: float) -> Row:
        """A row of this number."""
        constant = ir.Constant(self.type, [float(number)] * self.type.count)
        return Row(self.builder, [constant] * VECTORS)

    def _each(self, emit: Callable, *others) -> Row:
        others = [other if isinstance(other, Row) else self.like(other) for other in others]
        columns = zip(self.vectors, *(other.vectors for other in others), strict=True)
        return Row(self.builder, [emit(*vectors) for vectors in columns])

    __add__, __radd__ = _operator("fadd"), _operator("fadd", swapped=True)
    __sub__, __rsub__ = _operator("fsub"), _operator("fsub", swapped=True)
    __mul__, __rmul__ = _operator("fmul"), _operator("fmul", swapped=True)
    __truediv__, __rtruediv__ = _operator("fdiv"), _operator("fdiv", swapped=True)

    def replace(self, sign: str, bound, then) -> Row:
        """``then`` where the comparison holds, itself elsewhere."""

        def emit(value, bound, then):
            holds = self.builder.fcmp_ordered(sign, value, bound)
            return self.builder.select(holds, then, value)

        return self._each(emit, bound, then)

    def if_(self, condition, other) -> Row:
        """Itself if the condition, one bit for all, holds; else the other."""
        return self._each(lambda a, b: self.builder.select(condition, a, b), other)

    def times_power_of_two(self, shifted: Row) -> Row:
        """Times 2**n, n being what `exp_steps` has left in the last bits of ``shifted``."""
        bits = ir.VectorType(ir.IntType(32), self.type.count)
        places = ir.Constant(bits, [EXP_MANTISSA_BITS] * self.type.count)

        def emit(value, shifted):
            power = self.builder.shl(self.builder.bitcast(shifted, bits), places)
            return self.builder.fmul(value, self.builder.bitcast(power, self.type))

        return self._each(emit, shifted)

    def exp(self) -> Row:
        """As `_math.exp`."""
        if self.type.element == ir.FloatType():
            product, shifted = exp_steps(
                self.replace("<", EXP_LOW, EXP_LOW).replace(">", EXP_HIGH, EXP_HIGH)
            )
            return product.times_power_of_two(shifted)
        kind, name = ir.FunctionType(self.type, [self.type]), f"llvm.exp.v{self.type.count}f64"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self._each(lambda value: self.builder.call(function, [value]))


class _Panel:
    """Memory that holds rows of a panel, one after the other."""

    def __init__(self, builder, number, address):
        self.builder, self.address = builder, address
        scalar = ir.FloatType() if number.bitwidth == 32 else ir.DoubleType()
        self.vector = ir.VectorType(scalar, VECTOR_BYTES * 8 // number.bitwidth)
        self.align = number.bitwidth // 8

    def _places(self, row):
        start = self.builder.mul(row, ir.Constant(INTEGER, VECTORS * VECTOR_BYTES))
        start = self.builder.add(self.address, start)
        for j in range(VECTORS):
            place = self.builder.add(start, ir.Constant(INTEGER, j * VECTOR_BYTES))
            yield self.builder.inttoptr(place, ir.PointerType(self.vector))

    def load(self, row=FIRST) -> Row:
        vectors = [self.builder.load(place) for place in self._places(row)]
        for vector in vectors:
            vector.align = self.align
        return Row(self.builder, vectors)

    def store(self, values: Row, row=FIRST) -> None:
        for place, vector in zip(self._places(row), values.vectors, strict=True):
            self.builder.store(vector, place).align = self.align

    def spread(self, number) -> Row:
        """A row of a number that is known only when the code runs."""
        lane = ir.IntType(32)
        empty = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(empty, number, ir.Constant(lane, 0))
        everywhere = ir.Constant(ir.VectorType(lane, self.vector.count), [0] * self.vector.count)
        vector = self.builder.shuffle_vector(first, empty, everywhere)
        return Row(self.builder, [vector] * VECTORS)


def _for_each(builder, rows, body: Callable, state: Row | None = None) -> Row | None:
    """``for row in range(rows): state = body(row, state)``, at least once; returns the last.

    ``body`` runs once, while the code is written, and emits one round. A phi is a value that comes
    from before the loop in the first round and from the round before in the others.
    """
    before, walk, done = builder.block, *(builder.append_basic_block(n) for n in ("walk", "done"))
    builder.branch(walk)
    builder.position_at_end(walk)
    row = builder.phi(INTEGER)
    first = [] if state is None else state.vectors
    phis = [builder.phi(vector.type) for vector in first]
    state = body(row, Row(builder, phis) if phis else None)
    following = builder.add(row, ir.Constant(INTEGER, 1))
    last = [] if state is None else state.vectors
    for phi, start, later in zip([row, *phis], [FIRST, *first], [following, *last], strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(later, walk)
    builder.cbranch(builder.icmp_signed("<", following, rows), walk, done)
    builder.position_at_end(done)
    return state


@intrinsic
def softmax_columns(typingctx, number, rows, scores, scale, off_by_one, peaks, totals):
    """Softmax of ``scale * score`` down each column of the panel [rows, width], in place.

    rows and scale must be positive. ``scores``, ``peaks``, ``totals`` are addresses; the last two,
    [width], receive each column's largest score (0 if it is -inf) and the sum of
    exp(scale * (score - peak)). Off by one (`reference.softmax`), a score of 0 is counted in both. If
    the sum is 0, everything being -inf, the column becomes 0.
    """

    def build(context, builder, signature, arguments):
        _, rows, scores, scale, off_by_one, *places = arguments
        scores, peaks, totals = (_Panel(builder, number, a) for a in (scores, *places))
        scale = scores.spread(scale)
        zero, never = scale.like(0), scale.like(float("-inf"))
        off = builder.icmp_unsigned("!=", off_by_one, ir.Constant(off_by_one.type, 0))

        def higher(row, peak):
            score = scores.load(row)
            return peak.replace("<", score, score)

        peak = _for_each(builder, rows, higher, zero.if_(off, never)).replace("==", never, 0)

        def weigh(row, total):
            e = (scale * (scores.load(row) - peak)).exp()
            scores.store(e, row)
            return total + e

        one_more = (zero - scale * peak).exp()
        total = _for_each(builder, rows, weigh, one_more.if_(off, zero))
        factor = 1 / total.replace("==", 0, 1)

        def divide(row, _):
            scores.store(scores.load(row) * factor, row)

        _for_each(builder, rows, divide)
        peaks.store(peak)
        totals.store(total)
        return context.get_dummy_value()

    return types.void(number, intp, intp, number, types.boolean, intp, intp), build


@intrinsic
def slope_columns(typingctx, number, rows, scores, slopes, in_exp, scale, lse):
    """The way back: the panel of scores becomes softmax weights again, and ``slopes``, the slopes by
    the weights, become slopes by the scores before they were scaled.

    ``weight = exp(in_exp * score - lse)``, ``scale`` is the softmax's. ``scores``, ``slopes`` and
    ``lse`` [width] are addresses.
    """

    def build(context, builder, signature, arguments):
        _, rows, weights, slopes, in_exp, scale, lse = arguments
        weights, slopes, lse = (_Panel(builder, number, a) for a in (weights, slopes, lse))
        in_exp, scale, lse = weights.spread(in_exp), weights.spread(scale), lse.load()

        def weigh(row, total):
            w = (in_exp * weights.load(row) - lse).exp()
            weights.store(w, row)
            return total + w * slopes.load(row)

        mean = _for_each(builder, rows, weigh, scale.like(0))

        def centre(row, _):
            w = scale * weights.load(row)
            slopes.store(w * (slopes.load(row) - mean), row)

        _for_each(builder, rows, centre)
        return context.get_dummy_value()

    return types.void(number, intp, intp, intp, number, number, intp), build


@intrinsic
def gate_run(typingctx, number, rows, x, bias, a, b, out):
    """x += bias, and ``out = x / (1 + exp(x (a + b x²)))``: gelu or silu, as a and b are.

    Of ``rows`` times the panel's width numbers in one run, at the addresses x, bias and out.
    """

    def build(context, builder, signature, arguments):
        _, rows, x, bias, a, b, out = arguments
        x, bias, out = (_Panel(builder, number, place) for place in (x, bias, out))
        a, b = x.spread(a), x.spread(b)

        def gate(row, _):
            z = x.load(row) + bias.load(row)
            x.store(z, row)
            curve = b * (z * z).replace(">", FLAT, FLAT)
            out.store(z / (1 + (z * (a + curve)).exp()), row)

        _for_each(builder, rows, gate)
        return context.get_dummy_value()

    return types.void(number, intp, intp, intp, number, number, intp), build


@intrinsic
def gate_back_run(typingctx, number, rows, x, a, b, slopes, out):
    """The way back: ``slopes`` times the slope of `gate_run`, in place; and its output again."""

    def build(context, builder, signature, arguments):
        _, rows, x, a, b, slopes, out = arguments
        x, slopes, out = (_Panel(builder, number, place) for place in (x, slopes, out))
        a, b = x.spread(a), x.spread(b)

        def gate(row, _):
            z = x.load(row)
            curve = b * (z * z).replace(">", FLAT, FLAT)
            s = 1 / (1 + (z * (a + curve)).exp())
            out.store(z * s, row)
            inner = z * (1 - s) * (a + 3 * curve)
            slopes.store(slopes.load(row) * (s * (1 - inner)), row)

        _for_each(builder, rows, gate)
        return context.get_dummy_value()

    return types.void(number, intp, intp, number, number, intp, intp), build
