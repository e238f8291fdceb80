"""Files of arrays with a JSON record inside: npz, never pickle, written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minitx.errors import MinitxError

RECORD = "record.json"
"""Name under which the JSON text is stored, beside the arrays."""


def write_npz(
    path: str | os.PathLike, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any]
) -> None:
    """Write arrays and a JSON record to one file.

    The file is written beside its place and then moved there in one step: a crash in the middle
    leaves the earlier file as it was.

    Raises
    ------
    MinitxError
        If the folder does not exist or cannot be written.
    """
    path = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(
                    file,
                    **{RECORD: np.array(json.dumps(record, default=np.ndarray.tolist))},
                    **arrays,
                )
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes it private
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise MinitxError(
            f"Cannot write {str(path)!r}: {error.strerror or error}; choose a folder that exists "
            "and can be written."
        ) from error


def read_npz(path: str | os.PathLike, what: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the record of a file that `write_npz` wrote.

    Parameters
    ----------
    what : str
        What the file should be ("model file"), for the error.

    Raises
    ------
    MinitxError
        If there is no such file, it is damaged, or it is another kind of file.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        record = json.loads(str(arrays.pop(RECORD)))
    except FileNotFoundError:
        raise MinitxError(f"There is no {what} at {str(path)!r}.") from None
    except (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError) as error:
        raise MinitxError(_unreadable(path, what)) from error
    except (zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise MinitxError(_unreadable(path, what)) from error
    return arrays, record


def _unreadable(path: str | os.PathLike, what: str) -> str:
    return f"{str(path)!r} is not a {what} of minitx, or it is damaged; write it again."


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
