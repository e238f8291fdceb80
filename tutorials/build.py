"""Rebuild the notebooks from the percent scripts beside them.

    python tutorials/build.py            all of them
    python tutorials/build.py 3 4        only tutorials 3 and 4
    python tutorials/build.py --check    run them, write nothing
    python tutorials/build.py --text     only text changed: keep the outputs, run nothing

Edit the ``.py`` file, run this, commit both. Needs the extra ``notebooks``
(``pip install -e '.[notebooks]'``).
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import re
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
LARGEST = 400_000  # bytes of a notebook
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def scripts() -> list[Path]:
    """The tutorials' percent scripts, in order."""
    return sorted(HERE.glob("[0-9]_*.py"))


def read(script: Path):
    """A percent script as a notebook without outputs; cells are numbered, so that diffs stay small."""
    import jupytext

    notebook = jupytext.read(script, fmt="py:percent")
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
        cell.metadata.clear()
    notebook.metadata.clear()
    notebook.metadata["kernelspec"] = dict(KERNEL)
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def execute(script: Path, folder: Path, seconds: int = 900):
    """Run a tutorial in ``folder`` (where it may write) and return the notebook with its outputs."""
    from nbclient import NotebookClient

    notebook = read(script)
    paths = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "COLUMNS": "100",
    }
    client = NotebookClient(
        notebook, timeout=seconds, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    with client.setup_kernel(env=environment):
        for index, cell in enumerate(notebook.cells):
            client.execute_cell(cell, index)
    for cell in notebook.cells:
        cell.metadata.clear()  # when each cell ran: noise in a diff
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                output.text = re.sub(r"\x1b\[[0-9;]*m", "", output.text)  # colour codes
            if png := output.get("data", {}).get("image/png"):
                output["data"]["image/png"] = base64.b64encode(
                    smaller(base64.b64decode(png))
                ).decode()
    return notebook


def with_outputs_of(script: Path):
    """The script as a notebook, with the outputs of the notebook beside it if the code is the same."""
    import nbformat

    old = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    new = read(script)
    before, now = ([c for c in n.cells if c.cell_type == "code"] for n in (old, new))
    if [c.source for c in before] != [c.source for c in now]:
        raise SystemExit(f"{script.name}: code has changed; build it without --text.")
    for a, b in zip(before, now, strict=True):
        b.outputs, b.execution_count = a.outputs, a.execution_count
    return new


def smaller(png: bytes) -> bytes:
    """The same picture with a palette of 64 colours: a third of the bytes."""
    from PIL import Image

    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(64).save(out, "PNG", optimize=True)
    return out.getvalue()


def complaints(notebook) -> list[str]:
    """What must not be committed: errors, warnings, empty pictures, this machine's paths."""
    import nbformat

    found, pictures = [], 0
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            where = f"cell {number}"
            if output.output_type == "error":
                found.append(f"{where}: {output.ename}: {output.evalue}")
            if output.get("name") == "stderr":
                found.append(f"{where}: writes to standard error: {output.text[:200]!r}")
            text = output.get("text", "") + str(output.get("data", {}).get("text/plain", ""))
            if re.search(r"/home/|/root/|/tmp/|/Users/|[A-Z]:\\\\|site-packages", text):
                found.append(f"{where}: shows a path of this machine: {text[:200]!r}")
            if png := output.get("data", {}).get("image/png"):
                pictures += 1
                if picture_is_empty(base64.b64decode(png)):
                    found.append(f"{where}: the picture is empty")
            elif "<Figure" in text:
                found.append(f"{where}: a figure is shown as text")
    if not pictures:
        found.append("there is no picture in it")
    size = len(nbformat.writes(notebook).encode())
    if size > LARGEST:
        found.append(f"it is {size // 1000} kB large; at most {LARGEST // 1000}")
    return found


def picture_is_empty(png: bytes) -> bool:
    """Whether hardly any pixel differs from the background."""
    from matplotlib.image import imread

    pixels = imread(io.BytesIO(png))[..., :3]
    return bool((abs(pixels - pixels[0, 0]).max(-1) > 0.05).mean() < 0.002)


def main() -> int:
    import nbformat

    sys.path.insert(0, str(HERE.parent))
    import minitx

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("numbers", nargs="*", help="which tutorials; all by default")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--text", action="store_true", help="keep outputs, run nothing")
    options = parser.parse_args()
    if not options.text:
        minitx.kernels.warm_up()  # else the first tutorial shows how kernels are compiled
    code = 0
    for script in scripts():
        if options.numbers and script.name[0] not in options.numbers:
            continue
        start = time.monotonic()
        written = {}
        if options.text:
            notebook = with_outputs_of(script)
        else:
            with tempfile.TemporaryDirectory() as folder:
                notebook = execute(script, Path(folder))
                written = {p.name: p.read_bytes() for p in Path(folder).glob("*.py")}
        print(f"{script.stem}: {time.monotonic() - start:.0f} s")
        for complaint in complaints(notebook):
            print(f"  {complaint}")
            code = 1
        if not options.check:
            nbformat.write(notebook, script.with_suffix(".ipynb"))
            for name, content in written.items():  # my_experiment.py of tutorial 4
                (HERE / name).write_bytes(content)
    return code


if __name__ == "__main__":
    sys.exit(main())
