"""The role that an account of stateshift needs in Kubernetes, made from the table that the calls
are held to: `python -m tests.support.rbac` writes the file that is shipped.
"""

from __future__ import annotations

from stateshift.clusters.kubernetes.calls import NEEDS
from tests.acceptance.support import ROOT

FILE = ROOT / "configs" / "deploy" / "kubernetes-rbac.yaml"
_HEAD = """\
# The rights that stateshift uses with clusters of kind flink_operator (flink.apache.org and
# services/proxy), spark_operator (sparkoperator.k8s.io, pods: get, pods/log, events) and
# spark_submit with a master k8s://... (pods, pods/log, events), in the namespace of the jobs:
#   kubectl -n NAMESPACE apply -f kubernetes-rbac.yaml
# services/proxy: to ask JobManagers through the API server; not needed where "rest_url" is given.
# It may be narrowed to theirs: resourceNames: ["orders-rest:8081"].
apiVersion: v1
kind: ServiceAccount
metadata:
  name: stateshift
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: stateshift
rules:
"""
_TAIL = """\
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: stateshift
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: stateshift
subjects:
  - kind: ServiceAccount
    name: stateshift
"""


def manifest() -> str:
    rules = []
    for (group, resource), verbs in NEEDS.items():
        rules.append(
            f'  - apiGroups: ["{group}"]\n    resources: ["{resource}"]\n'
            f"    verbs: [{', '.join(verbs)}]\n"
        )
    return _HEAD + "".join(rules) + _TAIL


if __name__ == "__main__":
    FILE.write_text(manifest())
