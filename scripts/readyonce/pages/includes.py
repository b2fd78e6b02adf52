"""Every include that pages show. A page names the same include in both languages."""

from __future__ import annotations

from readyonce.data import frameworks
from readyonce.data.catalog import Catalog
from readyonce.data.project import Language
from readyonce.lab import counts
from readyonce.pages import decision, guard, incident, lint, rule_docs, schema_docs
from readyonce.pages.article import runs_table
from readyonce.pages.errors import ErrorPage
from readyonce.pages.overview import Overview


def every(catalog: Catalog, language: Language) -> dict[str, str]:
    """Every generated include of one language: name → Markdown or plain text."""
    files = {**of_catalog(catalog, language), **of_program(language)}
    for one in catalog.incidents.values():
        files |= incident.includes(catalog, one, language)
    return files


def of_program(language: Language) -> dict[str, str]:
    """What contributors read of the program itself, whatever the catalogue holds."""
    return {"keys.md": schema_docs.manual(language), "rules.md": rule_docs.manual()}


def of_catalog(catalog: Catalog, language: Language) -> dict[str, str]:
    """The includes that tell of more than one incident."""
    overview, errors = Overview(catalog, language), ErrorPage(catalog, language)
    files = {
        # The tables stand on pages at two depths, so their links are made for each.
        "first-errors.md": overview.first_errors(),
        "incidents-here.md": (
            overview.incidents_by_error() if overview.many else overview.incident_table(overview.with_error)
        ),
        "incidents-frameworks.md": overview.frameworks(),
        "incidents-silent.md": overview.incident_table(overview.silent),
        "errors.md": overview.errors(),
        "advice.md": overview.advice(),
        "silent.md": overview.silent_runs(),
        "look-alikes.md": errors.look_alikes(),
        "changes.md": overview.changes(),
        "two-hosts.md": overview.two_hosts(),
        "diagnose-links.md": diagnose_links(catalog),
        "diagnose-box.md": (catalog.root / "snippets" / "diagnose" / f"{language}.md").read_text(encoding="utf-8"),
        **counts.includes(catalog, language),
        **decision.includes(catalog, language),
        **frameworks.includes(catalog, language),
        **guard.includes(catalog, language),
        **lint.includes(catalog, language),
    }
    files |= {f"errors/{family.family}.md": errors.parts(family) for family in catalog.listed("own")}
    files |= {f"errors/{family.source}": errors.look_alike(family) for family in catalog.listed("look-alikes")}
    for name, of_runs in catalog.tables.items():
        files[f"tables/{name}.md"] = runs_table(overview, catalog.fitting(of_runs.where)[0], "../incidents/")
    return files


def diagnose_links(catalog: Catalog) -> str:
    """Every page that a diagnosis may lead to; the script takes the addresses from here, as this build has them."""
    targets = {id: f"incidents/{id}.md" for id in catalog.incidents}
    targets |= {name: f"errors/{family.source}" for name, family in catalog.families.items()}
    targets |= {
        "errors": "errors/index.md",
        "decision": "decision.md",
        "symptoms": "symptoms.md",
        "triage": "triage.md",
    }
    if guard.files(catalog):
        targets |= {"guard": "guard.md", "guard-compare": "guard-compare.md"}
    return "".join(f'- [{name}]({target}){{ data-ro-to="{name}" }}\n' for name, target in targets.items())
