"""The file that a rank leaves behind: written aside and renamed, so that it is whole or absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_measurement(run_dir: Path, document: dict[str, Any]) -> Path:
    """Write ``measure/rank-N.json`` of the document's rank and return its path."""
    folder = run_dir / "measure"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank-{document['rank']}.json"
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    aside.replace(path)
    return path
