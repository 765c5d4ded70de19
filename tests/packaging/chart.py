"""A rendered chart: its objects, and what must hold between them. Each check gives the list of what is wrong."""

import base64
import functools
import json
import pathlib
import re
import tomllib

import jsonschema
import kubernetes_validate
import referencing

from packages import CHART, HERE, helm, parsed, unknown_keys, variables

SCHEMAS = pathlib.Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
# The oldest that Chart.yaml asks for and the newest whose schemas there are; install.sh keeps these two.
KUBERNETES = ["1.25.0", "1.37.0"]
# Objects whose definitions are no part of Kubernetes, so that there is no schema: they are checked by hand.
FOREIGN = {"ServiceMonitor"}
WORKLOADS = {"Deployment", "StatefulSet"}


@functools.cache
def rendered(name=None, *arguments):
    """The objects of the chart under values/NAME.yaml, or its defaults."""
    values = ["--values", str(HERE / "values" / f"{name}.yaml")] if name else []
    code, said = helm("template", "relserve", str(CHART), "--namespace", "sheets", *values, *arguments)
    assert code == 0, said
    return parsed(said)


def cases():
    """Names of the files of values; None stands for the defaults."""
    return [None, *sorted(path.stem for path in (HERE / "values").glob("*.yaml"))]


def of_kind(objects, *kinds):
    return [one for one in objects if one["kind"] in kinds]


def named(objects, kind, name):
    return next((one for one in of_kind(objects, kind) if one["metadata"]["name"] == name), None)


def title(one):
    return f"{one['kind']} {one['metadata']['name']}"


def pod(workload):
    return workload["spec"]["template"]["spec"]


def containers(workload):
    return pod(workload).get("initContainers", []) + pod(workload)["containers"]


def picks(selector, labels):
    return bool(selector) and selector.items() <= labels.items()


@functools.cache
def definitions(version):
    contents = json.loads((SCHEMAS / f"v{version}-local-strict" / "_definitions.json").read_text())
    return referencing.Registry().with_resource("_definitions.json", referencing.Resource.from_contents(contents))


@functools.cache
def validator(version, kind, api):
    """That of a kind of object, which refuses fields that it does not have; the package's own reads its files each time."""
    # apps/v1 is apps-v1, networking.k8s.io/v1 is networking-v1, and v1 is v1.
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api)
    path = SCHEMAS / f"v{version}-local-strict" / f"{kind.lower()}-{group}.json"
    assert path.exists(), f"Kubernetes {version} has no {kind} of {api}"
    return jsonschema.Draft202012Validator(json.loads(path.read_text()), registry=definitions(version))


def against_schemas(objects):
    found = []
    for one in objects:
        if one["kind"] in FOREIGN:
            continue
        for version in KUBERNETES:
            for error in validator(version, one["kind"], one["apiVersion"]).iter_errors(one):
                found.append(f"{title(one)} under {version}: {'.'.join(map(str, error.path))}: {error.message}")
    return found


def twice(objects):
    titles = [title(one) for one in objects]
    return [f"{one} is there twice" for one in sorted(set(titles)) if titles.count(one) > 1]


def selectors(objects):
    """Each selector picks pods of one workload, and each workload its own pods."""
    found = []
    workloads = of_kind(objects, *WORKLOADS)
    labels = {title(one): one["spec"]["template"]["metadata"]["labels"] for one in workloads}
    for one in workloads:
        if not picks(one["spec"]["selector"]["matchLabels"], labels[title(one)]):
            found.append(f"{title(one)} does not pick its own pods")
        governing = named(objects, "Service", one["spec"].get("serviceName"))
        if one["kind"] == "StatefulSet" and (governing is None or governing["spec"].get("clusterIP") not in ["None"]):
            if not (governing and one["spec"]["replicas"] == 1):
                found.append(f"{title(one)}: serviceName is no headless service")
        for spread in pod(one).get("topologySpreadConstraints", []):
            if not picks(spread["labelSelector"]["matchLabels"], labels[title(one)]):
                found.append(f"{title(one)} spreads other pods than its own")
    for one in of_kind(objects, "Service", "PodDisruptionBudget"):
        selector = one["spec"]["selector"]
        selector = selector.get("matchLabels", selector)
        picked = [name for name, own in labels.items() if picks(selector, own)]
        if len(picked) != 1:
            found.append(f"{title(one)} picks the pods of {picked}, not of one workload")
    for one in of_kind(objects, "ServiceMonitor"):
        selector = one["spec"]["selector"]["matchLabels"]
        services = [each for each in of_kind(objects, "Service") if picks(selector, each["metadata"]["labels"])]
        if len(services) != 1:
            found.append(f"{title(one)} picks {[title(each) for each in services]}, not one service")
            continue
        ports = {port["name"] for port in services[0]["spec"]["ports"]}
        found += [f"{title(one)}: no port {each['port']}" for each in one["spec"]["endpoints"] if each["port"] not in ports]
    return found


def ports(objects):
    """Ports of probes and services are those of containers."""
    found = []
    for one in of_kind(objects, *WORKLOADS):
        for container in containers(one):
            names = {port["name"] for port in container.get("ports", [])}
            for probe in ["startupProbe", "livenessProbe", "readinessProbe"]:
                if probe not in container:
                    found.append(f"{title(one)}: no {probe}")
                elif "httpGet" in container[probe] and container[probe]["httpGet"]["port"] not in names:
                    found.append(f"{title(one)}: {probe} asks a port that is not there")
    for service in of_kind(objects, "Service"):
        for workload in of_kind(objects, *WORKLOADS):
            if not picks(service["spec"]["selector"], workload["spec"]["template"]["metadata"]["labels"]):
                continue
            names = {port["name"] for container in containers(workload) for port in container.get("ports", [])}
            found += [
                f"{title(service)}: no port {port['targetPort']} in {title(workload)}"
                for port in service["spec"]["ports"] if port["targetPort"] not in names
            ]
    for ingress in of_kind(objects, "Ingress"):
        for rule in ingress["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                backend = path["backend"]["service"]
                service = named(objects, "Service", backend["name"])
                if not service or backend["port"]["name"] not in {port["name"] for port in service["spec"]["ports"]}:
                    found.append(f"{title(ingress)}: no port {backend} of a service")
    return found


def referenced(objects):
    """Secrets, config maps and accounts that pods name, as (kind, name, key or None, who)."""
    for one in of_kind(objects, *WORKLOADS):
        spec = pod(one)
        if "serviceAccountName" in spec:
            yield "ServiceAccount", spec["serviceAccountName"], None, title(one)
        for secret in spec.get("imagePullSecrets", []):
            yield "Secret", secret["name"], None, title(one)
        for volume in spec.get("volumes", []):
            if "configMap" in volume:
                yield "ConfigMap", volume["configMap"]["name"], None, title(one)
            if "secret" in volume:
                yield "Secret", volume["secret"]["secretName"], None, title(one)
        for container in containers(one):
            for variable in container.get("env", []):
                source = variable.get("valueFrom", {})
                if "secretKeyRef" in source:
                    yield "Secret", source["secretKeyRef"]["name"], source["secretKeyRef"]["key"], title(one)
    for ingress in of_kind(objects, "Ingress"):
        for tls in ingress["spec"].get("tls", []):
            yield "Secret", tls["secretName"], None, title(ingress)


def references(objects, outside=()):
    """What is named is rendered, or one of `outside`, which the values say that somebody else makes."""
    found = []
    for kind, name, key, who in referenced(objects):
        if name in outside:
            continue
        target = named(objects, kind, name)
        if target is None:
            found.append(f"{who}: {kind} {name} is not rendered")
        elif key is not None and key not in target.get("data", {}):
            found.append(f"{who}: {kind} {name} has no {key}")
    for one in of_kind(objects, *WORKLOADS):
        volumes = [volume["name"] for volume in pod(one).get("volumes", [])]
        volumes += [claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", [])]
        mounts = [mount["name"] for container in containers(one) for mount in container.get("volumeMounts", [])]
        if sorted(set(volumes)) != sorted(set(mounts)):
            found.append(f"{title(one)}: volumes {sorted(volumes)}, mounts {sorted(mounts)}")
    return found


def safety(objects):
    """No container is root or may become it; images are pinned; no secret is in clear outside secrets."""
    found = []
    for one in of_kind(objects, *WORKLOADS):
        context = pod(one)["securityContext"]
        if not (context.get("runAsNonRoot") and context.get("runAsUser", 0) > 0 and "seccompProfile" in context):
            found.append(f"{title(one)}: may be root, or without seccomp")
        if pod(one).get("automountServiceAccountToken") is not False:
            found.append(f"{title(one)}: has a token of the cluster's API")
        for container in containers(one):
            own = container["securityContext"]
            if own.get("allowPrivilegeEscalation") is not False or own["capabilities"]["drop"] != ["ALL"]:
                found.append(f"{title(one)}: {container['name']} keeps privileges")
            if container["name"] != "vllm" and own.get("readOnlyRootFilesystem") is not True:
                found.append(f"{title(one)}: {container['name']} writes its root file system")
            if not re.search(r":[\w.-]+$", container["image"]) or container["image"].endswith(":latest"):
                found.append(f"{title(one)}: {container['image']} is not pinned")
            for variable in container.get("env", []):
                if re.search("KEY|PASSWORD|TOKEN|URL", variable["name"]) and "valueFrom" not in variable:
                    found.append(f"{title(one)}: {variable['name']} in clear")
    secrets = [value for one in of_kind(objects, "Secret") for value in one["data"].values()]
    secrets = [base64.b64decode(value).decode() for value in secrets]
    others = str([one for one in objects if one["kind"] != "Secret"])
    found += ["a secret stands outside of secrets" for secret in secrets if secret in others]
    return found


def toml_of(objects):
    config, = of_kind(objects, "ConfigMap")
    return config["data"]["relserve.toml"]


def gateway(objects):
    return next(one for one in of_kind(objects, *WORKLOADS) if containers(one)[0]["name"] == "relserve")


def configuration(objects):
    """The configuration is TOML of known keys, and fits what is around it."""
    text, found = toml_of(objects), []
    config = tomllib.loads(text)
    found += [f"docs/CONFIGURATION.md has no {key}" for key in unknown_keys(config)]
    container, = containers(gateway(objects))
    environment = {variable["name"] for variable in container["env"]}
    found += [f"${{{name}}} is not in the gateway's environment" for name in variables(text) - environment]
    numbers = {port["name"]: port["containerPort"] for port in container["ports"]}
    server = config["server"]
    http = "https" if "certificate" in server else "http"
    wanted = {http: server["listen"], "health": server["health_listen"]}
    if "listen" in config.get("sql", {}):
        wanted["sql"] = config["sql"]["listen"]
    wanted = {name: int(address.rsplit(":", 1)[1]) for name, address in wanted.items()}
    if wanted != numbers:
        found.append(f"the configuration listens on {wanted}, the container has {numbers}")
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"]:
        if container[probe]["httpGet"]["scheme"] != http.upper():
            found.append(f"{probe} does not speak {http}")
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    files = [section[key] for section in [server, config.get("sql", {})] for key in ["certificate", "certificate_key"] if key in section]
    found += [f"{file} is not mounted" for file in files if file.rsplit("/", 1)[0] not in mounts]
    if config["store"]["data_dir"] not in mounts:
        found.append("store.data_dir is no volume")
    if config["store"]["node"] != "${RELSERVE_NODE}":
        found.append("store.node is not the pod's name: two gateways would have one name")
    drain = server.get("drain_ms_max", 30_000) / 1000
    if pod(gateway(objects))["terminationGracePeriodSeconds"] < drain + 5:
        found.append("the gateway is killed while it drains")
    if "dns" in config.get("discovery", {}):
        name = config["discovery"]["dns"].split(".")[0]
        service = named(objects, "Service", name)
        if not service or service["spec"]["clusterIP"] != "None" or service["spec"].get("publishNotReadyAddresses"):
            found.append(f"discovery.dns: {name} is no headless service of servers that are ready")
        elif config["discovery"]["port"] not in [port["port"] for port in service["spec"]["ports"]]:
            found.append("discovery.port is no port of the service")
        if config["discovery"]["replica"].get("priority"):
            vllm, = [one for one in of_kind(objects, *WORKLOADS) if containers(one)[0]["name"] == "vllm"]
            if "--scheduling-policy" not in containers(vllm)[0]["args"]:
                found.append("discovery.replica.priority: the servers are not told to mind it")
            if containers(vllm)[0]["args"][1] != config["model"]["name"]:
                found.append("model.name is not the servers'")
            drain = int(containers(vllm)[0]["lifecycle"]["preStop"]["exec"]["command"][1])
            if drain * 1000 <= config["discovery"].get("ttl_ms_max", 30_000):
                found.append("a server stops before the gateways know")
    return found
