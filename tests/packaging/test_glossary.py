"""The glossary has each term once, in alphabetical order."""

import re
from pathlib import Path

GLOSSARY = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"


def test_terms_are_sorted_and_unique():
    terms = re.findall(r"^\| ([^|]+?) \|", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)[1:]
    assert len(terms) > 50 and terms == sorted(set(terms))
