"""What the documents name is there: tests, files, metrics."""

import ast
import re
from pathlib import Path

import pytest
from prometheus_client import Counter, Gauge, Histogram

from shopmicro.messaging import metrics

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(document.relative_to(ROOT)) for document in DOCUMENTS]


def names_of_tests() -> set[str]:
    files = [file for file in ROOT.rglob("test_*.py") if ".venv" not in file.parts]
    functions = {
        node.name
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    return functions | {file.name for file in files}


def anchors(document: Path) -> set[str]:
    """Give what a link may name of a document after its `#`, as the headings' ids are made."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(document: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = document.parent / path if path else document
    return target.exists() and (not anchor or anchor in anchors(target))


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_every_test_that_a_document_names_exists(document: Path) -> None:
    named = set(re.findall(r"\btest_\w+(?:\.py)?", document.read_text()))
    assert named - names_of_tests() == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", document.read_text())
    relative = [link for link in links if "://" not in link]
    assert [link for link in relative if not leads_somewhere(document, link)] == []


def test_the_readme_leads_to_every_document_but_decisions() -> None:
    readme = (ROOT / "README.md").read_text()
    documents = {f"docs/{document.name}" for document in (ROOT / "docs").glob("*.md")}
    assert {document for document in documents if f"]({document})" not in readme} == set()


def test_operations_name_every_metric_and_no_other() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    ours = [metric for metric in vars(metrics).values() if isinstance(metric, Counter | Gauge | Histogram)]
    names = {metric._name + ("_total" if isinstance(metric, Counter) else "") for metric in ours}
    assert set(re.findall(r"\bshopmicro_\w+", text)) == names


def test_every_file_of_the_machinery_stands_in_the_architectures_tree() -> None:
    left_out = {"__init__.py", "apps.py"}
    tree = (ROOT / "docs" / "architecture.md").read_text().split("```")[3]
    files = {file.name for file in (ROOT / "shopmicro" / "messaging").glob("*.py")}
    files |= {file.name for file in (ROOT / "shopmicro").glob("*.py")}
    assert {name for name in files - left_out if name not in tree} == set()
