"""The manifest for the Dask operator, by the operator's own schema, and its pods and its service by those of Kubernetes."""

import json
import subprocess
import sys

import pytest
import yaml
from jsonschema import Draft7Validator

from support.project import ROOT

pytestmark = pytest.mark.cluster
INSTALLED = ROOT / ".venv" / "kubernetes"
CRD = "dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds/daskcluster.yaml"
OLDEST, NEWEST = "1.25", "1.37"  # Kubernetes, as the validator has them


@pytest.fixture(scope="module")
def manifest():
    return yaml.safe_load((ROOT / "snippets" / "cluster" / "kubernetes.yaml").read_text(encoding="utf-8"))


def strict(schema):
    """Kubernetes drops a key that it does not know, in silence; here it is a fault."""
    if isinstance(schema, list):
        return [strict(it) for it in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(it) for key, it in schema.items()}
    if made.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
    if isinstance(made.get("properties"), dict) and not made.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def faults(manifest) -> list[str]:
    definition = yaml.safe_load((INSTALLED / CRD).read_text(encoding="utf-8"))
    group, (version,) = definition["spec"]["group"], definition["spec"]["versions"]
    assert (manifest["apiVersion"], manifest["kind"]) == (f"{group}/{version['name']}", "DaskCluster")
    schema = strict(version["schema"]["openAPIV3Schema"])
    schema["properties"] |= dict.fromkeys(("apiVersion", "kind", "metadata"), True)
    return [it.message for it in Draft7Validator(schema).iter_errors(manifest)]


def test_the_operator_takes_the_manifest(manifest):
    assert not faults(manifest)


@pytest.mark.parametrize("name, value", [("replicas", "four"), ("nodeSelector", {}), ("replica", 4)])
def test_the_operator_would_not_take_it(manifest, name, value):
    worker = manifest["spec"]["worker"] | {name: value}
    assert len(faults(manifest | {"spec": manifest["spec"] | {"worker": worker}})) == 1


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kubernetes_takes_what_it_is_made_of(manifest, version, tmp_path):
    worker, scheduler = manifest["spec"]["worker"], manifest["spec"]["scheduler"]
    made = {name: ("Pod", it["spec"]) for name, it in (("worker", worker), ("scheduler", scheduler))}
    for name, (kind, spec) in (made | {"service": ("Service", scheduler["service"])}).items():
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec}))
        asked = [sys.executable, "-m", "kubernetes_validate", "--strict", "--kubernetes-version", version, str(path)]
        told = subprocess.run(asked, env={"PYTHONPATH": str(INSTALLED)}, capture_output=True, text=True)
        assert told.returncode == 0, told.stdout + told.stderr
