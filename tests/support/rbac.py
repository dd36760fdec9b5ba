"""The roles that an account of stateshift needs in Kubernetes, made from the tables that the calls
are held to: `python -m tests.support.rbac` writes the files that are shipped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stateshift.clusters.kubernetes.calls import (
    CLUSTER_NEEDS,
    FLINK_NEEDS,
    POD_NEEDS,
    SPARK_NEEDS,
    Rights,
)
from tests.acceptance.support import ROOT

_DEPLOY: Final = ROOT / "configs" / "deploy"
_OF_OPERATORS: Final = """\
# The rights that stateshift uses with clusters of kind flink_operator (flink.apache.org and
# services/proxy) and spark_operator (the others), in the namespace of the jobs:
#   kubectl -n NAMESPACE apply -f kubernetes-rbac.yaml
# services/proxy: to ask JobManagers through the API server; not needed where "rest_url" is given.
# It may be narrowed to theirs: resourceNames: ["orders-rest:8081"].
"""
_OF_PODS: Final = """\
# The rights that stateshift uses with clusters of kind spark_submit whose drivers are pods (a master
# k8s://..., cluster mode), in the namespace of the jobs, and only there:
#   kubectl -n NAMESPACE apply -f kubernetes-rbac-pods.yaml
# An account that may create pods may run as any account of its namespace. stateshift itself creates
# none, but tries one (dryRun); spark-submit, which runs as the same account, creates the driver, and
# needs services, configmaps and networkpolicies (create, patch) besides.
"""
_ACCOUNT: Final = """\
apiVersion: v1
kind: ServiceAccount
metadata:
  name: stateshift
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {role}
rules:
"""
_TAIL: Final = """\
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {role}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {role}
subjects:
  - kind: ServiceAccount
    name: stateshift
"""


_OPTIONAL_HEAD = """\
# Optional: with it, stateshift knows whether the nodes have room for a job before it stops the old
# one. Nodes and the pods of all namespaces are the whole cluster's. Put your namespace at its end, then:
#   sed 's/^#: //' kubernetes-rbac.yaml | kubectl -n NAMESPACE apply -f -
"""
_CLUSTER_HEAD = """\
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: stateshift-room
rules:
"""
_CLUSTER_TAIL = """\
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: stateshift-room
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: stateshift-room
subjects:
  - kind: ServiceAccount
    name: stateshift
    namespace: NAMESPACE
"""


def manifest(head: str, role: str, needs: Rights) -> str:
    return head + _ACCOUNT.format(role=role) + _rules(needs) + _TAIL.format(role=role)


def _rules(rights: Rights) -> str:
    rules = []
    for (group, resource), verbs in rights.items():
        rules.append(
            f'  - apiGroups: ["{group}"]\n    resources: ["{resource}"]\n'
            f"    verbs: [{', '.join(verbs)}]\n"
        )
    return "".join(rules)


def manifests() -> dict[Path, str]:
    operators = {**FLINK_NEEDS, **SPARK_NEEDS}
    optional = f"{_CLUSTER_HEAD}{_rules(CLUSTER_NEEDS)}{_CLUSTER_TAIL}"
    hidden = "".join(f"#: {line}\n" for line in optional.splitlines())
    of_operators = manifest(_OF_OPERATORS, "stateshift", operators)
    return {
        _DEPLOY / "kubernetes-rbac.yaml": f"{of_operators}{_OPTIONAL_HEAD}{hidden}",
        _DEPLOY / "kubernetes-rbac-pods.yaml": manifest(_OF_PODS, "stateshift-pods", POD_NEEDS),
    }


if __name__ == "__main__":
    for path, text in manifests().items():
        path.write_text(text)
