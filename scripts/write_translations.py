"""Write the catalogs that JupyterLab reads, hybrid_lab/lab/locale/, from the .po files of extension/locale/.

    python scripts/write_translations.py            the catalogs; new texts of the front end go into the .po files
    python scripts/write_translations.py --check    whether the catalogs are up to date and nothing is missing

A new language is a new .po file, named after JupyterLab's language pack (jupyterlab-language-pack-pt-BR: pt_BR.po):
copy de_DE.po and change its Plural-Forms.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "extension" / "locale"
TARGET = ROOT / "hybrid_lab" / "lab" / "locale"
DOMAIN = "hybrid_lab"
Text = str | tuple[str, str]


def texts() -> list[Text]:
    """The texts of the front end: one form, or those for one and for many."""
    done = subprocess.run(["node", "extension/texts.mjs"], cwd=ROOT, capture_output=True, text=True, check=True)
    found = map(json.loads, done.stdout.splitlines())
    return [text if isinstance(text, str) else (text[0], text[1]) for text in found]


def opened(path: Path) -> Catalog:
    """A .po file."""
    with path.open("rb") as file:
        return read_po(file, locale=path.stem, domain=DOMAIN)


def catalog_json(catalog: Catalog, language: str) -> str:
    """A catalog as JupyterLab's translator loads it: text -> the forms of its translation."""
    header = {
        "domain": DOMAIN,
        "language": language.replace("_", "-"),
        "plural_forms": catalog.plural_forms,
        "version": "1",
    }
    content: dict[str, object] = {"": header}
    for message in sorted(catalog, key=lambda each: each.id if isinstance(each.id, str) else each.id[0]):
        forms = _forms(message)
        if message.id and all(forms):
            content[message.id if isinstance(message.id, str) else message.id[0]] = list(forms)
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def _forms(message: Message) -> Sequence[str]:
    """The translation of a text: one form, or one for each number of things that the language tells apart."""
    return message.string if isinstance(message.string, (list, tuple)) else [message.string]


def problems(catalog: Catalog, wanted: Sequence[Text]) -> list[str]:
    """Texts without a translation, translations of no text, and those with other places for arguments."""
    known = {message.id: message for message in catalog if message.id}
    found = [f"{text!r} has no translation" for text in wanted if text not in known or not all(_forms(known[text]))]
    found += [f"{text!r} is no text of the front end" for text in known if text not in set(wanted)]
    for text, message in known.items():
        forms = _forms(message)
        places = set(re.findall(r"%\d|%%", text if isinstance(text, str) else text[1]))
        found += [f"{text!r}: {form!r} has other arguments" for form in forms
                  if form and set(re.findall(r"%\d|%%", form)) != places]  # fmt: skip
    return found


def updated(catalog: Catalog, wanted: Sequence[Text]) -> Catalog:
    """The catalog with the texts that there are now; new ones are empty."""
    known = {message.id: message.string for message in catalog if message.id}
    new = Catalog(locale=catalog.locale, domain=DOMAIN)
    for text in wanted:
        new.add(text, known.get(text, "" if isinstance(text, str) else [""] * catalog.num_plurals))
    return new


def po_file(catalog: Catalog, language: str) -> bytes:
    """The .po file, without dates, so that it changes with its texts alone."""
    stream = io.BytesIO()
    write_po(stream, catalog, width=110, omit_header=True, sort_output=True)
    head = (
        f"# {catalog.locale.english_name if catalog.locale else language}: the texts of Hybrid Lab's front end.\n"
        f'msgid ""\nmsgstr ""\n"Language: {language}\\n"\n"Plural-Forms: {catalog.plural_forms}\\n"\n'
        '"Content-Type: text/plain; charset=utf-8\\n"\n\n'
    )
    return head.encode() + stream.getvalue()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where something differs")
    asked = parser.parse_args(arguments)
    wanted, failed = texts(), False
    for path in sorted(SOURCES.glob("*.po")):
        catalog = opened(path)
        if not asked.check:
            catalog = updated(catalog, wanted)
            path.write_bytes(po_file(catalog, path.stem))
        target = TARGET / path.stem / "LC_MESSAGES" / f"{DOMAIN}.json"
        content = catalog_json(catalog, path.stem)
        lines = problems(catalog, wanted)
        if asked.check:
            if not target.exists() or target.read_text(encoding="utf-8") != content:
                lines.append(f"{target.relative_to(ROOT)} is old: python scripts/write_translations.py")
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content, encoding="utf-8")
        for line in lines:
            print(f"{path.relative_to(ROOT)}: {line}")
        failed = failed or bool(lines)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
