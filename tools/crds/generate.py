"""Writes the CRD files: `make crds`.

One file a kind in `src/grove/crds`, named `<group>_<plural>.yaml`, all as JSON, which loads twenty times faster,
all in `charts/grove-crds.yaml`, and for editors in `schemas/grove.json`. Run it after a change of `grove.api`; tests
compare the files with what it writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import yaml
from tools.crds.definitions import DEFINITIONS, DIALECTS, Definition
from tools.crds.editors import editor_schema
from tools.crds.schema import kind_schema

from grove.api.meta import Json
from grove.crds import ALL, DIALECTS_FOLDER, load_text

_HEADER = "# Made by `make crds` from grove.api; do not edit.\n"


class _Plain(yaml.CSafeDumper):
    """Writes shared parts out in full: not every tool that reads a CRD follows YAML anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def crd(definition: Definition) -> Json:
    """The CustomResourceDefinition of a kind."""
    resource = definition.kind.RESOURCE
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.plural.removesuffix("s"),
                **({"shortNames": [definition.short_name]} if definition.short_name else {}),
            },
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [column.to_json() for column in definition.columns],
                    "subresources": definition.subresources,
                    "schema": {"openAPIV3Schema": kind_schema(definition.kind, definition.rules)},
                }
            ],
        },
    }


def rendered() -> dict[str, str]:
    """File name to content, for all kinds."""
    return _files(DEFINITIONS, "") | _files(DIALECTS, f"{DIALECTS_FOLDER}/")


def _files(definitions: Iterable[Definition], folder: str) -> dict[str, str]:
    by_name = {f"{folder}{d.kind.RESOURCE.group}_{d.kind.RESOURCE.plural}.yaml": crd(d) for d in definitions}
    texts = {
        name: _HEADER + yaml.dump(definition, Dumper=_Plain, sort_keys=False, width=120, allow_unicode=True)
        for name, definition in by_name.items()
    }
    return {**texts, f"{folder}{ALL}": msgspec.json.encode([by_name[name] for name in sorted(by_name)]).decode()}


def main() -> None:
    root = Path(__file__).parents[2]
    for name, text in rendered().items():
        (root / "src" / "grove" / "crds" / name).write_text(text)
        print(f"{name}: {len(text.splitlines())} lines")
    (root / "charts" / "grove-crds.yaml").write_text(load_text(dialects=True))
    (root / "schemas" / "grove.json").write_text(editor_schema())


if __name__ == "__main__":
    main()
