"""The parts of other operators' resources that the chart uses, closed: a field that isn't here is a mistake or belongs here.

Names and types are those of CloudNativePG's documentation, and of the definitions of KEDA and the Prometheus operator.
"""

from typing import Any

TEXT = {"type": "string"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
WHOLE = {"type": "integer"}
ANY = {"type": "object"}


def closed(required: str, **properties: Any) -> dict[str, Any]:
    """An object with these fields and no others."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required.split(),
        "properties": properties,
    }


def several(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1}


SPECS = {
    "postgresql.cnpg.io/v1 Cluster": closed(
        "instances storage",
        imageName=TEXT,
        instances=WHOLE,
        primaryUpdateStrategy={"enum": ["unsupervised", "supervised"]},
        bootstrap=closed(
            "initdb",
            initdb=closed(
                "database owner",
                database=TEXT,
                owner=TEXT,
                encoding=TEXT,
                postInitApplicationSQL=several(TEXT),
            ),
        ),
        managed=closed(
            "roles",
            roles=several(
                closed(
                    "name",
                    name=TEXT,
                    ensure={"enum": ["present", "absent"]},
                    login={"type": "boolean"},
                    passwordSecret=closed("name", name=TEXT),
                )
            ),
        ),
        postgresql=closed("parameters", parameters=TEXTS),
        storage=closed("size", size=TEXT, storageClass=TEXT),
        resources=closed("", requests=ANY, limits=ANY),
    ),
    "postgresql.cnpg.io/v1 Pooler": closed(
        "cluster pgbouncer",
        cluster=closed("name", name=TEXT),
        instances=WHOLE,
        type={"enum": ["rw", "ro", "r"]},
        pgbouncer=closed(
            "poolMode", poolMode={"enum": ["session", "transaction"]}, parameters=TEXTS
        ),
    ),
    "keda.sh/v1alpha1 ScaledObject": closed(
        "scaleTargetRef triggers",
        scaleTargetRef=closed("name", name=TEXT),
        minReplicaCount=WHOLE,
        maxReplicaCount=WHOLE,
        cooldownPeriod=WHOLE,
        fallback=closed(
            "failureThreshold replicas",
            failureThreshold=WHOLE,
            replicas=WHOLE,
            behavior={"enum": ["static", "currentReplicas", "currentReplicasIfHigher"]},
        ),
        triggers=several(
            closed(
                "type metadata",
                type={"const": "prometheus"},
                metadata=closed(
                    "serverAddress query threshold", serverAddress=TEXT, query=TEXT, threshold=TEXT
                ),
            )
        ),
    ),
    "monitoring.coreos.com/v1 ServiceMonitor": closed(
        "selector endpoints",
        selector=closed("matchLabels", matchLabels=TEXTS),
        endpoints=several(
            closed(
                "port",
                port=TEXT,
                path=TEXT,
                interval=TEXT,
                authorization=closed(
                    "credentials", credentials=closed("name key", name=TEXT, key=TEXT)
                ),
            )
        ),
    ),
}
"""By apiVersion and kind: what `spec` may be."""
