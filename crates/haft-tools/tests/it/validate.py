"""Validates requests against the OpenAPI document that they were built from. Prints one line of JSON per error.

openapi-core does not support deep objects and parameters with `anyOf` or `oneOf`. qs-codec decodes these, as real servers do,
and openapi-schema-validator validates them. The last line of the output counts the validated requests and parameters.
"""

import base64
import copy
import json
import re
import sys
from urllib.parse import parse_qsl, unquote, urlsplit

import qs_codec
from openapi_core import Config, OpenAPI
from openapi_core.testing import MockRequest
from openapi_schema_validator import OAS30Validator
from werkzeug.datastructures import ImmutableMultiDict

spec_path, requests_path, base = sys.argv[1:4]
with open(spec_path) as file:
    document = json.load(file)
# Replace the servers and remove the security requirements: this test validates neither of them.
document["servers"] = [{"url": base}]
for item in document["paths"].values():
    for part in [item, *[value for value in item.values() if isinstance(value, dict)]]:
        part.pop("servers", None)
        part.pop("security", None)
document.pop("security", None)


def simplified(value):
    """Removes the parts that openapi-core does not support: discriminators, deep objects, and parameters with alternatives."""
    if isinstance(value, list):
        return [simplified(item) for item in value if not is_deep(item)]
    if not isinstance(value, dict):
        return value
    kept = {key: simplified(item) for key, item in value.items() if key != "discriminator" or not isinstance(item, dict)}
    if isinstance(kept.get("in"), str) and any(key in kept.get("schema", {}) for key in ("anyOf", "oneOf")):
        kept["schema"] = {}
    if isinstance(kept.get("encoding"), dict) and isinstance(kept.get("schema"), dict):
        for name in [name for name, encoding in kept["encoding"].items() if is_deep(encoding)]:
            kept["encoding"].pop(name)
            kept["schema"]["properties"].pop(name)
    # openapi-core reads a form by its properties, so it would report a required field without a property as missing.
    if isinstance(kept.get("required"), list) and isinstance(kept.get("properties"), dict):
        kept["required"] = [name for name in kept["required"] if name in kept["properties"]]
    return kept


def is_deep(item):
    return isinstance(item, dict) and item.get("style") == "deepObject"


# Remove the fragments of paths, because clients do not send them to the server.
for path in [path for path in document["paths"] if "#" in path]:
    document["paths"].setdefault(path.split("#")[0], document["paths"].pop(path))


media_types = set()
for item in document["paths"].values():
    for operation in item.values():
        if isinstance(operation, dict):
            media_types |= set(operation.get("requestBody", {}).get("content", {}))
for body in document.get("components", {}).get("requestBodies", {}).values():
    media_types |= set(body.get("content", {}))
readers = {kind: json.loads for kind in media_types if kind.endswith("+json") or kind == "*/*"}
whole = copy.deepcopy(document)
document = simplified(document)
api = OpenAPI.from_dict(document, config=Config(spec_validator_cls=None, extra_media_type_deserializers=readers))
with open(requests_path) as file:
    requests = json.load(file)


def resolved(value):
    while isinstance(value, dict) and "$ref" in value:
        target = whole
        for part in value["$ref"].removeprefix("#/").split("/"):
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            target = target[int(name) if isinstance(target, list) else name]
        value = target
    return value


# Try the paths with the fewest parameters first, as servers do.
routes = sorted(whole["paths"], key=lambda path: path.count("{"))
routes = [(re.compile(re.sub(r"\\{[^}]*\\}", "[^/]+", re.escape(path))), resolved(whole["paths"][path])) for path in routes]


def operation_of(method, path):
    path = path.removeprefix(urlsplit(base).path)
    for route, item in routes:
        if route.fullmatch(path) and method in item:
            return item, resolved(item[method])
    raise LookupError(f"no operation for {method} {path}")


def valid(value, schema):
    return OAS30Validator({**schema, "components": whole.get("components", {})}).is_valid(value)


def typed(value, schema):
    """Converts text to the types in the schema."""
    schema = resolved(schema) or {}
    for alternative in schema.get("anyOf") or schema.get("oneOf") or []:
        candidate = typed(value, alternative)
        if valid(candidate, resolved(alternative)):
            return candidate
    for member in schema.get("allOf", []):
        value = typed(value, member)
    if isinstance(value, dict):
        properties, more = schema.get("properties", {}), schema.get("additionalProperties")
        inner = lambda name: properties.get(name, more if isinstance(more, dict) else {})
        return {name: typed(item, inner(name)) for name, item in value.items()}
    if isinstance(value, list):
        return [typed(item, schema.get("items", {})) for item in value]
    kind = schema.get("type")
    if kind == "boolean" and value in ("true", "false"):
        return value == "true"
    if kind in ("integer", "number") and re.fullmatch(r"-?\d+(\.\d+)?", str(value)):
        return int(value) if kind == "integer" and "." not in value else float(value)
    return value


def decoded(text):
    return qs_codec.decode(text, qs_codec.DecodeOptions(depth=20, list_limit=1000))


def beyond(request, url):
    """Yields the parameters that openapi-core does not validate: kind, name, schema and decoded value."""
    item, operation = operation_of(request["method"].lower(), url.path)
    query = decoded(url.query)
    for parameter in map(resolved, item.get("parameters", []) + operation.get("parameters", [])):
        schema = resolved(parameter.get("schema", {}))
        kind = "deep" if is_deep(parameter) else "alternatives" if "anyOf" in schema or "oneOf" in schema else None
        if kind and parameter["in"] == "query" and parameter["name"] in query:
            yield kind, parameter["name"], schema, query[parameter["name"]]
    if (request["content_type"] or "").startswith("application/x-www-form-urlencoded"):
        media = resolved(operation["requestBody"])["content"]["application/x-www-form-urlencoded"]
        form = decoded(base64.b64decode(request["body"] or "").decode())
        for name, encoding in media.get("encoding", {}).items():
            if is_deep(encoding) and name in form:
                yield "deep", name, resolved(media["schema"])["properties"][name], form[name]


judged = {"judged": len(requests), "deep": 0, "alternatives": 0}
for request in requests:
    url = urlsplit(request["url"])
    made = MockRequest(
        f"{url.scheme}://{url.netloc}",
        request["method"].lower(),
        url.path,
        args=ImmutableMultiDict(parse_qsl(url.query, keep_blank_values=True)),
        headers=request["headers"],
        cookies=request["cookies"],
        data=base64.b64decode(request["body"]) if request["body"] is not None else b"",
        content_type=request["content_type"] or "",
    )
    for error in api.iter_request_errors(made):
        cause = error.__cause__ or error
        details = [str(getattr(e, "message", e))[:200] for e in getattr(cause, "schema_errors", [])] or str(cause)[:300]
        print(json.dumps({"tool": request["tool"], "error": f"{type(error).__name__}: {details}"}))
    for kind, name, schema, value in beyond(request, url):
        judged[kind] += 1
        if not valid(typed(value, schema), resolved(schema)):
            print(json.dumps({"tool": request["tool"], "error": f"{name}: {str(value)[:200]} does not match the schema"}))
print(json.dumps(judged))
