"""What the grader says of files that cannot be graded, and of answers of the wrong kind."""

import textwrap

import pytest

from minitx.errors import MinitxError
from minitx.grading.exercise import exercise
from minitx.grading.grader import grade
from minitx.grading.report import in_words

RIGHT = "return y * (g - (g * y).sum(-1, keepdims=True))"


def words_of(tmp_path, source, name="softmax_backward"):
    file = tmp_path / f"{name}.py"
    if isinstance(source, bytes):
        file.write_bytes(source)
    else:
        file.write_text(textwrap.dedent(source).lstrip(), encoding="utf-8")
    result = grade(exercise(name), file)
    words = in_words(result)
    assert "Traceback" not in words and not result.passed
    return " ".join(words.split())


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            "def softmax_backward(g, y)\n    return g\n",
            "it is not valid Python: expected ':' in line 1",
        ),
        ("def softmax_backward(g, y):\nreturn g\n", "it is not valid Python"),
        ("def softmax(g, y):\n    return g\n", "has no function `softmax_backward`"),
        ("softmax_backward = 3\n", "has no function `softmax_backward`"),
        ("", "has no function `softmax_backward`"),
        (
            "def softmax_backward(g):\n    return g\n",
            "the signature was changed: it is softmax_backward(g)",
        ),
        (
            "def softmax_backward(g, y, z):\n    return g\n",
            "and is called as softmax_backward(g, y)",
        ),
        ("import scipy\n", "it imports 'scipy', which is not there while grading"),
        ("1 / 0\n", "raises ZeroDivisionError in line 1, `1 / 0`: division by zero"),
        (b"\xff\xfe\x00\x01", "is not a text file in UTF-8"),
        (b"# nothing\n" * 30_000, "is larger than"),
        (b"\x00", "not valid Python"),
    ],
)
def test_file_that_cannot_be_tried(tmp_path, source, sentence):
    assert sentence.lower() in words_of(tmp_path, source).lower()


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("pass", "It returned None (is a return statement missing?)"),
        ("raise NotImplementedError", "`softmax_backward` is not written yet"),
        ("return 1.0", "It returned a single number; expected an array of shape"),
        (
            "return (y * (g - (g * y).sum(-1, keepdims=True))).tolist()",
            "It returned a list of length",
        ),
        ("return lambda: g", "It returned a function"),
        ("return (g, y)", "It returned a tuple of length 2"),
        ("return g[None]", "It returned an array of shape (1, 2)"),
        ("return np.ma.masked_array(g)", "It returned a MaskedArray"),
        ("return g + 1j", "It returned complex numbers"),
        ("return g @ y.T @ g @ h", "raises NameError in line 5"),
        ("return g.summ()", "raises AttributeError in line 5, `return g.summ()`"),
        ("return softmax_backward(g, y)", "raises RecursionError"),
        ("return -" + RIGHT.removeprefix("return "), "the sign is wrong"),
        ("return 3 * " + RIGHT.removeprefix("return "), "your answer is 3 times the right one"),
        ("return np.sqrt(np.abs(g)) * y", "Hint: gx_i = y_i (g_i - sum_j g_j y_j)"),
    ],
)
def test_answer_of_the_wrong_kind(tmp_path, body, sentence):
    source = f"import numpy as np\n\n\ndef softmax_backward(g, y):\n    {body}\n"
    assert sentence.lower() in words_of(tmp_path, source).lower()


def test_what_the_function_printed_is_shown_with_the_counterexample(tmp_path):
    source = "def softmax_backward(g, y):\n    print('shape', g.shape)\n    return g\n"
    assert "it printed shape (2,)" in words_of(tmp_path, source)


def test_default_arguments_and_callables_are_fine(tmp_path):
    file = tmp_path / "softmax_backward.py"
    file.write_text(
        "class Rule:\n    def __call__(self, g, y, axis=-1):\n"
        "        return y * (g - (g * y).sum(axis, keepdims=True))\n\nsoftmax_backward = Rule()\n"
    )
    assert grade(exercise("softmax_backward"), file).passed


def test_one_missing_function_costs_only_its_parts(tmp_path):
    words = words_of(
        tmp_path,
        """
        import numpy as np

        def attention_received(pattern):
            size = np.abs(pattern)
            total = size.sum(-1, keepdims=True)
            shares = size / np.where(total > 0, total, 1)
            return shares.sum(-2) / np.arange(pattern.shape[-1], 0, -1)
        """,
        "sink_metric",
    )
    assert "sink_metric: 6 of 10 points" in words and "has no function `sink_metric`" in words


def test_smallest_counterexample_is_small_and_the_same_for_the_same_seed(tmp_path):
    file = tmp_path / "softmax_backward.py"
    file.write_text("def softmax_backward(g, y):\n    return g * y\n")
    first, again = (grade(exercise("softmax_backward"), file, seed=7) for _ in range(2))
    assert in_words(first) == in_words(again)
    g, y = first.parts[0].example.arguments
    assert g.shape == y.shape == (2,) and (g != 0).sum() == 1


def test_unreadable_file_is_wrong_usage(tmp_path):
    with pytest.raises(MinitxError, match="Cannot read"):
        grade(exercise("unbroadcast"), tmp_path / "nothing.py")
    with pytest.raises(MinitxError, match="Cannot read"):
        grade(exercise("unbroadcast"), tmp_path)


def test_unknown_exercise_lists_the_known_ones():
    with pytest.raises(MinitxError, match="did you mean|Did you mean 'unbroadcast'"):
        exercise("unbroadcats")
