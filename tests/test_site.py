"""A site of the project's pages: each is there, can be found, and leads to pages that are there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import stateshift

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_page_is_in_the_site_and_no_link_of_it_leads_nowhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(ROOT / "scripts" / "site"), str(tmp_path)],
        env={**os.environ, "STATESHIFT_VENV": sys.prefix},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    site = tmp_path / stateshift.__version__
    assert json.loads((tmp_path / "versions.json").read_text()) == [stateshift.__version__]
    assert f"url={stateshift.__version__}/" in (tmp_path / "index.html").read_text()
    for page in (
        "",
        "stateshift/standby",
        "configs/outputs",
        "CHANGELOG",
        "scripts/bench/results/copy",
    ):
        assert (site / page / "index.html").is_file(), page
    assert "reposition" in (site / "searchindex.js").read_text()
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        for address in re.findall(r'(?:href|src)="([^"]+)"', page.read_text("utf-8")):
            parts = urlsplit(address)
            if parts.scheme in ("http", "https"):
                assert parts.netloc not in ("fonts.googleapis.com", "cdn.jsdelivr.net"), page
            elif not parts.scheme and parts.path:
                target = page.parent / unquote(parts.path)
                assert target.exists(), f"{page}: {address}"
